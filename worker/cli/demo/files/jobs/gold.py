"""Add a day of orders up."""

import json
from decimal import Decimal

from lake import DAY, LAKE, write

hours = [json.loads(path.read_text()) for path in sorted((LAKE / "silver").glob(f"{DAY}T*.json"))]
amounts = [Decimal(order["amount"]) for hour in hours for order in hour]
write("gold", {"day": DAY, "orders": len(amounts), "revenue": str(sum(amounts))})
print(f"{DAY}: {len(amounts)} orders")
