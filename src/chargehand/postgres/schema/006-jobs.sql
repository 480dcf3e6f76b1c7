-- The engine that has runs driven: the queue of a run, the job it is in, and whether it needs a person (parked). A run
-- without a queue is driven by the process that began it.
ALTER TABLE runs
    ADD COLUMN queue text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN job text COLLATE "C",
    ADD COLUMN parked boolean NOT NULL DEFAULT false;

CREATE INDEX runs_to_drive ON runs (tenant, number) WHERE NOT ended AND NOT parked AND queue <> '';

CREATE INDEX runs_by_job ON runs (job) WHERE job IS NOT NULL AND NOT ended;

-- This database among those that share an engine, and when open runs were last looked at: one process does so at a time.
CREATE TABLE deployment (
    name text NOT NULL DEFAULT left(replace(gen_random_uuid()::text, '-', ''), 12),
    reconciled timestamptz NOT NULL DEFAULT '-infinity'
);

INSERT INTO deployment DEFAULT VALUES;
