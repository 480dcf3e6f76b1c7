-- Files that runs are given by reference.
CREATE TABLE files (
    at float8 NOT NULL,
    size bigint NOT NULL,
    tenant int NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    media_type text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, id)
);

ALTER TABLE files ALTER COLUMN body SET STORAGE EXTERNAL;

ALTER TABLE files ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY own_tenant ON files USING (tenant = current_tenant());
