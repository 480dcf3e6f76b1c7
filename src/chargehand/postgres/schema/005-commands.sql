-- What a process asks of a run that another one drives: to stop, to pause, an answer. settled is when the process that
-- drives it carried it out or refused it, and refusal why it did; null while it has done neither.
CREATE TABLE commands (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled timestamptz,
    id uuid NOT NULL UNIQUE,
    tenant int NOT NULL DEFAULT current_tenant(),
    version int NOT NULL,
    type text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    refusal bytea
);

CREATE INDEX commands_by_run ON commands (run, number);

CREATE INDEX commands_open ON commands (tenant, run) WHERE settled IS NULL;

CREATE INDEX commands_by_age ON commands (at);

ALTER TABLE commands ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY own_tenant ON commands USING (tenant = current_tenant());
