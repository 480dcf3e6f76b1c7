-- The messages to an agent, or of a conversation, that are answered one after the other, whichever server each came to.
-- A row is added before its run begins, and its number is its place.
CREATE TABLE agent_queue (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant int NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    lane text COLLATE "C" NOT NULL,
    run text COLLATE "C" NOT NULL,
    UNIQUE (tenant, run)
);

CREATE INDEX agent_queue_lanes ON agent_queue (tenant, lane, number);

ALTER TABLE agent_queue ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY own_tenant ON agent_queue USING (tenant = current_tenant());

-- How many entries of its journal a row is made of: what is older does not replace what is newer.
ALTER TABLE letta_runs ADD COLUMN seq bigint NOT NULL DEFAULT 0;
