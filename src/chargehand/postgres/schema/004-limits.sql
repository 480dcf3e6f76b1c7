-- Limits of providers that hold for all processes together. Not logged: after a crash of the server every process tells
-- its share again. A credential is a digest.
CREATE UNLOGGED TABLE provider_limits (
    credential text COLLATE "C" PRIMARY KEY,
    allowed int,                       -- calls at once after refusals; NULL: as many as configured
    round int NOT NULL DEFAULT 0,      -- how often `allowed` was lowered
    changed float8 NOT NULL DEFAULT 0, -- when `allowed` was changed
    paused_until float8 NOT NULL DEFAULT 0
);

CREATE UNLOGGED TABLE provider_shares (
    credential text COLLATE "C" NOT NULL,
    session int NOT NULL,              -- holds the advisory lock (1667787629, session) as long as its process lives
    member int NOT NULL,               -- a limiter of that process
    slots int NOT NULL,
    demand int NOT NULL,               -- calls under way and waiting
    unmet int NOT NULL,                -- calls that wait for slots
    hungry_since float8,               -- since when some wait
    PRIMARY KEY (credential, session, member)
);

CREATE UNLOGGED TABLE provider_usage (
    credential text COLLATE "C" NOT NULL,
    second bigint NOT NULL,
    requests int NOT NULL,
    tokens bigint NOT NULL,
    PRIMARY KEY (credential, second)
);

CREATE SEQUENCE limit_sessions AS int CYCLE;

-- Takes requests and tokens of the last minute. The caller has locked the credential. A minute is 61 cells of a second:
-- with 60, twice the limit would pass around the edge of a cell.
CREATE FUNCTION take_usage(
    p_credential text, p_now float8, p_rpm int, p_tpm int,
    p_requests int, p_tokens bigint, p_first bigint, p_excess bigint,
    OUT requests int, OUT tokens bigint, OUT wait float8
) LANGUAGE plpgsql AS $$
DECLARE
    this_second bigint := floor(p_now);
    used_requests bigint;
    used_tokens bigint;
    oldest bigint;
BEGIN
    DELETE FROM provider_usage u WHERE u.credential = p_credential AND u.second <= this_second - 61;
    SELECT coalesce(sum(u.requests), 0), coalesce(sum(u.tokens), 0) + p_excess, min(u.second)
        INTO used_requests, used_tokens, oldest
        FROM provider_usage u WHERE u.credential = p_credential;
    requests := p_requests;
    tokens := p_tokens;
    wait := 0;
    IF p_rpm > 0 THEN requests := least(p_requests, p_rpm - used_requests); END IF;
    IF p_tpm > 0 THEN tokens := least(p_tokens, p_tpm - used_tokens); END IF;
    IF oldest IS NULL THEN  -- even a call larger than the limit goes once nothing else does
        tokens := greatest(tokens, p_first);
    END IF;
    IF p_requests > 0 AND (requests < 1 OR tokens < p_first) THEN
        wait := greatest(0.05, oldest + 61 - p_now);
    END IF;
    IF wait > 0 OR p_requests = 0 THEN
        requests := 0;
        tokens := 0;
    END IF;
    IF requests <> 0 OR tokens <> 0 OR p_excess <> 0 THEN
        INSERT INTO provider_usage AS u VALUES (p_credential, this_second, requests, tokens + p_excess)
            ON CONFLICT (credential, second)
            DO UPDATE SET requests = u.requests + excluded.requests, tokens = u.tokens + excluded.tokens;
    END IF;
END $$;

-- One limiter says what it has and wants, and is told what it may have. The row of the credential is locked by a
-- statement of its own: whatever is counted after it is seen as it is after the wait.
CREATE FUNCTION exchange_limits(
    p_credential text, p_session int, p_member int,
    p_concurrency int, p_rpm int, p_tpm int, p_recover float8,
    p_slots int, p_active int, p_waiting int,
    p_requests int, p_tokens bigint, p_first bigint, p_excess bigint,
    p_refused_round int, p_succeeded boolean, p_hold float8,
    OUT slots int, OUT fair int, OUT round int, OUT slowed boolean, OUT pause float8,
    OUT requests int, OUT tokens bigint, OUT wait float8
) LANGUAGE plpgsql AS $$
DECLARE
    lim provider_limits;
    mine provider_shares;
    now_at float8 := extract(epoch FROM clock_timestamp());
    allowed int;
    others int;
    claimants int;
    hungry int;
    reserved int;
    wanted int;
    left_unmet int;
    tell boolean := false;
BEGIN
    INSERT INTO provider_limits (credential) VALUES (p_credential) ON CONFLICT DO NOTHING;
    SELECT * INTO lim FROM provider_limits l WHERE l.credential = p_credential FOR UPDATE;
    now_at := extract(epoch FROM clock_timestamp());
    SELECT * INTO mine FROM provider_shares s
        WHERE s.credential = p_credential AND s.session = p_session AND s.member = p_member;
    allowed := least(coalesce(lim.allowed, p_concurrency), p_concurrency);

    IF p_refused_round = lim.round THEN
        SELECT coalesce(sum(s.slots), 0) + p_slots INTO others FROM provider_shares s
            WHERE s.credential = p_credential AND (s.session, s.member) <> (p_session, p_member);
        allowed := greatest(1, least(allowed, others) / 2);
        lim.allowed := allowed;
        lim.round := lim.round + 1;
        lim.changed := now_at;
        tell := true;
    ELSIF p_succeeded AND lim.allowed IS NOT NULL AND now_at - lim.changed >= p_recover THEN
        allowed := allowed + 1;
        lim.allowed := CASE WHEN allowed < p_concurrency THEN allowed END;
        lim.changed := now_at;
        tell := true;
    END IF;
    IF p_hold > 0 AND now_at + p_hold > lim.paused_until THEN
        lim.paused_until := now_at + p_hold;
        tell := true;
    END IF;
    IF tell THEN
        UPDATE provider_limits l SET allowed = lim.allowed, round = lim.round, changed = lim.changed,
            paused_until = lim.paused_until WHERE l.credential = p_credential;
    END IF;

    IF p_waiting > 0 THEN  -- only who waits needs the shares of the dead
        DELETE FROM provider_shares s WHERE s.credential = p_credential AND s.session <> p_session AND NOT EXISTS (
            SELECT FROM pg_locks k WHERE k.locktype = 'advisory' AND k.classid = 1667787629::oid
                AND k.objid = s.session::oid AND k.objsubid = 2
                AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database()));
    END IF;
    SELECT coalesce(sum(s.slots), 0), 1 + count(*) FILTER (WHERE s.demand > 0), count(*) FILTER (WHERE s.unmet > 0)
        INTO others, claimants, hungry FROM provider_shares s
        WHERE s.credential = p_credential AND (s.session, s.member) <> (p_session, p_member);
    fair := allowed / claimants;
    -- who has less than a fair part comes first, then who has waited for longer
    SELECT coalesce(sum(CASE
            WHEN s.slots < fair AND p_slots >= fair THEN fair - s.slots
            WHEN (s.slots < fair) = (p_slots < fair) AND s.hungry_since < coalesce(mine.hungry_since, now_at) THEN 1
            ELSE 0 END), 0)
        INTO reserved FROM provider_shares s
        WHERE s.credential = p_credential AND (s.session, s.member) <> (p_session, p_member) AND s.unmet > 0;
    slots := p_slots;
    IF p_waiting > 0 THEN
        wanted := p_active + p_waiting - p_slots;
        IF hungry = 0 THEN wanted := wanted + greatest(2, (p_active + p_waiting) / 4); END IF;
        slots := p_slots + greatest(0, least(wanted, allowed - others - p_slots - reserved));
    END IF;
    left_unmet := greatest(0, p_active + p_waiting - slots);
    IF slots = 0 AND left_unmet = 0 THEN
        DELETE FROM provider_shares s
            WHERE s.credential = p_credential AND s.session = p_session AND s.member = p_member;
    ELSE
        INSERT INTO provider_shares AS s VALUES (p_credential, p_session, p_member, slots, p_active + p_waiting, left_unmet,
            CASE WHEN left_unmet = 0 THEN NULL WHEN slots > p_slots THEN now_at ELSE coalesce(mine.hungry_since, now_at) END)
            ON CONFLICT (credential, session, member) DO UPDATE SET slots = excluded.slots, demand = excluded.demand,
            unmet = excluded.unmet, hungry_since = excluded.hungry_since;
    END IF;
    tell := tell OR (left_unmet > 0 AND coalesce(mine.unmet, 0) = 0 AND others > 0)
        OR (hungry > 0 AND slots < coalesce(mine.slots, 0));
    IF tell THEN PERFORM pg_notify('chargehand_limits', p_credential); END IF;

    fair := CASE WHEN hungry > 0 OR others + slots > allowed THEN least(fair, p_active + p_waiting) ELSE -1 END;
    round := lim.round;
    slowed := lim.allowed IS NOT NULL;
    pause := greatest(0, lim.paused_until - now_at);
    SELECT u.requests, u.tokens, u.wait INTO requests, tokens, wait FROM take_usage(
        p_credential, now_at, p_rpm, p_tpm, p_requests, p_tokens, p_first, p_excess) u;
END $$;
