-- Agents, groups, tools, conversations, blocks and archives. The body is the thing as JSON; name (its first characters),
-- tags and members are copied from it to be found by. Numbers are in the order of making and stand for ids wherever
-- something hangs on one, which goes with it.
CREATE TABLE things (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant int NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    space text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    tags text[] COLLATE "C" NOT NULL,
    members text[] COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    UNIQUE (tenant, space, id)
);

CREATE INDEX things_by_name ON things (tenant, space, kind, name, number);

CREATE INDEX things_in_order ON things (tenant, space, kind, number);

CREATE TABLE attachments (
    owner bigint NOT NULL REFERENCES things ON DELETE CASCADE,
    thing bigint NOT NULL REFERENCES things ON DELETE CASCADE,
    tenant int NOT NULL DEFAULT current_tenant(),
    tainted boolean NOT NULL,
    access text NOT NULL,
    PRIMARY KEY (owner, thing)
);

CREATE INDEX attachments_by_thing ON attachments (thing);

-- A block's history. The key is a digest of its origin's, or of one made up: an edit whose answer was lost finds itself
-- here. `repeated` is a digest of what an append or insert adds, by run and task: a later attempt finds what an earlier
-- one did.
CREATE TABLE changes (
    block bigint NOT NULL REFERENCES things ON DELETE CASCADE,
    version int NOT NULL,
    tenant int NOT NULL DEFAULT current_tenant(),
    attempt int NOT NULL,
    key bytea NOT NULL,
    repeated bytea,
    body bytea NOT NULL,
    PRIMARY KEY (block, version),
    UNIQUE (block, key)
);

CREATE INDEX changes_by_repetition ON changes (block, repeated, attempt) WHERE repeated IS NOT NULL;

-- Words are found in any form, small words too: phrases are made of them. Texts come without accents, signs and
-- capitals, so the locale of the database does not matter.
CREATE TEXT SEARCH DICTIONARY stems (TEMPLATE = snowball, language = english);

CREATE TEXT SEARCH CONFIGURATION words (COPY = pg_catalog.simple);

ALTER TEXT SEARCH CONFIGURATION words ALTER MAPPING FOR asciiword, word, numword WITH stems;

-- How well a text matches one term: more often is better, in fewer words too, but never as much as another term.
CREATE FUNCTION term_rank(words tsvector, query tsquery) RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ts_rank(words, query) / (4 + ln(1 + length(words)));

-- A summary comes where the last turn was that it stands for.
CREATE TABLE turns (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent bigint NOT NULL REFERENCES things ON DELETE CASCADE,
    moment float8 NOT NULL,
    upto bigint NOT NULL,
    place bigint GENERATED ALWAYS AS (CASE WHEN upto > 0 THEN upto ELSE number END) STORED,
    tenant int NOT NULL DEFAULT current_tenant(),
    tainted boolean NOT NULL,
    old boolean NOT NULL DEFAULT false,
    role text NOT NULL,
    text text NOT NULL,
    run text NOT NULL,
    task text NOT NULL,
    words tsvector NOT NULL
);

CREATE INDEX turns_in_order ON turns (agent, place, number);

CREATE INDEX turns_shown ON turns (agent, place, number) WHERE NOT old;

-- Digests of keys under which something was said once; they outlive a reset.
CREATE TABLE said (
    agent bigint NOT NULL REFERENCES things ON DELETE CASCADE,
    tenant int NOT NULL DEFAULT current_tenant(),
    key bytea NOT NULL,
    PRIMARY KEY (agent, key)
);

-- What is known of an archive: one row once it has, or had, a passage. handle and width say which model made its
-- vectors, where embedded, the number of them, is not 0. Who inserts or deletes locks it.
CREATE TABLE holdings (
    archive bigint PRIMARY KEY REFERENCES things ON DELETE CASCADE,
    passages bigint NOT NULL DEFAULT 0,
    embedded bigint NOT NULL DEFAULT 0,
    width int NOT NULL DEFAULT 0,
    tenant int NOT NULL DEFAULT current_tenant(),
    handle text NOT NULL DEFAULT ''
);

-- key is a digest of that of its origin.
CREATE TABLE passages (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    archive bigint NOT NULL REFERENCES things ON DELETE CASCADE,
    created float8 NOT NULL,
    part bigint NOT NULL,
    tenant int NOT NULL DEFAULT current_tenant(),
    space text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    key bytea,
    text text NOT NULL,
    tags text[] COLLATE "C" NOT NULL,
    metadata text NOT NULL,
    origin text NOT NULL,
    document text NOT NULL,
    UNIQUE (archive, digest),
    UNIQUE (tenant, space, id)
);

CREATE INDEX passages_in_order ON passages (archive, number);

CREATE UNIQUE INDEX passages_by_key ON passages (archive, key, part) WHERE key IS NOT NULL;

-- The words of passages, and as words that no text has: the number of the archive, and digests of tags, source, run,
-- task and worker. So one index answers questions with filters. There is no policy on this table, because PostgreSQL
-- uses no word index below one: it has nothing but stems, and is reached only by the number of an archive.
CREATE TABLE passage_words (
    passage bigint PRIMARY KEY REFERENCES passages ON DELETE CASCADE,
    created float8 NOT NULL,
    words tsvector NOT NULL
);

-- each insertion goes into the index at once: a list of pending ones would be walked through by every search
CREATE INDEX passage_words_index ON passage_words USING gin (words) WITH (fastupdate = off);

ALTER TABLE things ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE attachments ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE changes ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE turns ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE said ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE holdings ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE passages ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY own_tenant ON things USING (tenant = current_tenant());

CREATE POLICY own_tenant ON attachments USING (tenant = current_tenant());

CREATE POLICY own_tenant ON changes USING (tenant = current_tenant());

CREATE POLICY own_tenant ON turns USING (tenant = current_tenant());

CREATE POLICY own_tenant ON said USING (tenant = current_tenant());

CREATE POLICY own_tenant ON holdings USING (tenant = current_tenant());

CREATE POLICY own_tenant ON passages USING (tenant = current_tenant());
