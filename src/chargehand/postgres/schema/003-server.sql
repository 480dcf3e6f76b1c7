-- Requests that were confirmed to be for a worker: one row for each run, source and worker.
CREATE TABLE route_examples (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at float8 NOT NULL,
    tenant int NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    team text COLLATE "C" NOT NULL,
    run text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    request text NOT NULL,
    UNIQUE (tenant, team, run, source, worker)
);

CREATE INDEX route_examples_of_workers ON route_examples (tenant, team, worker, source, number);

-- Runs and messages as clients of agents read them. All of it is derived from the journal. Bodies are what is sent, as
-- JSON. A conversation is one beside the agent's own, or nothing. A run is open until its journal ends. The name is
-- that of the journal: a run inside another has an id of its own.
CREATE TABLE letta_runs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created float8 NOT NULL,
    tenant int NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    open boolean NOT NULL,
    background boolean NOT NULL,
    id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    status text NOT NULL,
    stop text NOT NULL,
    body bytea NOT NULL,
    UNIQUE (tenant, id)
);

CREATE INDEX letta_runs_in_order ON letta_runs (tenant, created, number);

CREATE INDEX letta_runs_of_agent ON letta_runs (tenant, agent, created, number);

CREATE INDEX letta_runs_by_name ON letta_runs (tenant, name);

CREATE INDEX letta_runs_open ON letta_runs (tenant, number) WHERE open;

-- Messages of one run stand together: `created` is when it began.
CREATE TABLE letta_messages (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created float8 NOT NULL,
    tenant int NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    run text COLLATE "C" NOT NULL,
    type text NOT NULL,
    body bytea NOT NULL,
    UNIQUE (tenant, id)
);

CREATE INDEX letta_messages_in_order ON letta_messages (tenant, created, number);

CREATE INDEX letta_messages_of_agent ON letta_messages (tenant, agent, created, number);

CREATE INDEX letta_messages_of_conversation ON letta_messages (tenant, conversation, created, number)
    WHERE conversation <> '';

CREATE INDEX letta_messages_of_run ON letta_messages (tenant, run, created, number);

-- Access keys of all tenants: who is calling is known only after they were read, so there is no policy. Of a token only
-- its hash is kept.
CREATE TABLE keys (
    id text COLLATE "C" PRIMARY KEY,
    digest bytea NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    scope text NOT NULL,
    created float8 NOT NULL,
    expires float8,
    revoked float8
);

ALTER TABLE route_examples ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE letta_runs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE letta_messages ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY own_tenant ON route_examples USING (tenant = current_tenant());

CREATE POLICY own_tenant ON letta_runs USING (tenant = current_tenant());

CREATE POLICY own_tenant ON letta_messages USING (tenant = current_tenant());
