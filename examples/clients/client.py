"""Lists the runs that failed in the last week, page by page. Usage: client.py URL TOKEN."""

import sys

import httpx

with httpx.Client(base_url=f"{sys.argv[1]}/api/v1", headers={"Authorization": f"Bearer {sys.argv[2]}"}) as api:
    query = {"state": "failed", "since": "7d"}
    while query:
        page = api.get("/runs", params=query).raise_for_status().json()
        for run in page["items"]:
            print(run["pipeline"], run["period"], run["reason"])
        query = {**query, "cursor": page["next"]} if page["next"] else {}
