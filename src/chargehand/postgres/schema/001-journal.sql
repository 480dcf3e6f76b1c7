-- Tenants. Every table but this one has a column `tenant`, filled from the session, and a policy that shows a session
-- only what is its tenant's. Superusers and roles with BYPASSRLS see everything: a server should be neither.
CREATE TABLE tenants (
    number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);

CREATE FUNCTION current_tenant() RETURNS int LANGUAGE sql STABLE PARALLEL SAFE
    RETURN nullif(current_setting('chargehand.tenant', true), '')::int;

-- Every opened journal. Its connection holds the advisory lock (owner_class, lock), which ends with the connection.
CREATE SEQUENCE owner_locks AS int CYCLE;

CREATE TABLE owners (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    beat timestamptz NOT NULL,
    tenant int NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    lock int NOT NULL,
    pid int NOT NULL,
    host text NOT NULL
);

-- One row a run, with a number that stands for its name in the entries. holder names the claim that holds it, and
-- owner the opened journal that made the claim; null when it is free. seq moves with every append: half of each page
-- is left free for that, and no index has it.
CREATE TABLE runs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    owner bigint,
    tenant int NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    ended boolean NOT NULL DEFAULT false,
    run text COLLATE "C" NOT NULL,
    holder text,
    UNIQUE (tenant, run)
) WITH (fillfactor = 50);

CREATE INDEX runs_in_order ON runs (tenant, number);

CREATE INDEX runs_open ON runs (tenant, number) WHERE NOT ended;

CREATE INDEX runs_by_owner ON runs (owner) WHERE owner IS NOT NULL;

-- Large bodies are kept out of line, as they are. Run numbers rise with time: should one table become too large, it can
-- be attached as the first range of a partitioned one.
CREATE TABLE entries (
    run bigint NOT NULL,
    seq bigint NOT NULL,
    at float8 NOT NULL,
    epoch bigint NOT NULL,
    crc bigint NOT NULL,
    tenant int NOT NULL DEFAULT current_tenant(),
    version int NOT NULL,
    type text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, seq)
);

ALTER TABLE entries ALTER COLUMN body SET STORAGE EXTERNAL;

ALTER TABLE owners ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE runs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE entries ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY own_tenant ON owners USING (tenant = current_tenant());

CREATE POLICY own_tenant ON runs USING (tenant = current_tenant());

CREATE POLICY own_tenant ON entries USING (tenant = current_tenant());
