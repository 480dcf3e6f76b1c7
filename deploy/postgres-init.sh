#!/bin/sh
# Run once by the image of PostgreSQL, when its data folder is empty. chargehand owns its database and is no superuser,
# so that row level security keeps tenants apart.
set -eu
psql --no-psqlrc --set ON_ERROR_STOP=1 --set password="$CHARGEHAND_DB_PASSWORD" --username postgres --dbname postgres <<'SQL'
CREATE ROLE chargehand LOGIN PASSWORD :'password';
CREATE DATABASE chargehand OWNER chargehand;
\connect chargehand
CREATE EXTENSION vector;
SQL
