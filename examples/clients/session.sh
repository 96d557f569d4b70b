#!/bin/sh
# Writes a sensor and shows the run that it is for. Usage: session.sh URL TOKEN PIPELINE KEY
set -eu
api="$1/api/v1" token="$2" pipeline="$3" key="$4" day="$(date -u +%F)"

curl --fail-with-body --silent --show-error \
  --header "Authorization: Bearer $token" \
  --header "Idempotency-Key: $pipeline-$key-$day" \
  --json '{"status": "complete", "rows": 1200}' \
  "$api/sensors/$pipeline/$key?period=$day"
echo
curl --silent --show-error --header "Authorization: Bearer $token" "$api/runs/$pipeline/stream/$day/explanation"
echo
