-- Up to which entry each webhook of a run was told; due: from when on it may be tried. A row is written before its run.
CREATE TABLE deliveries (
    seq bigint NOT NULL DEFAULT 0,
    due float8 NOT NULL,
    tenant int NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    tries int NOT NULL DEFAULT 0,
    given_up boolean NOT NULL DEFAULT false,
    webhook text COLLATE "C" NOT NULL,
    run text COLLATE "C" NOT NULL,
    error text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, webhook, run)
);

ALTER TABLE deliveries ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY own_tenant ON deliveries USING (tenant = current_tenant());
