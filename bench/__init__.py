"""What chargehand costs, beside bare asyncio doing the same: `python -m bench`, one table."""
