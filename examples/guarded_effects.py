"""Outside effects that happen once: a payment, an email, a call of an API that knows no keys.

The bank drops repeated keys. The mail server does not: `once` guards each mail, whoever asks for
it. The courier must not be asked twice either: its step is at most once.

Run:     python examples/guarded_effects.py
Prints:
         bank: 500 cents, then the connection broke
         bank: this key has paid already
         mail to ana: your order A-1
         courier: parcel A-1
         buy: paid, mailed, parcel-A-1
         confirm again: mailed
"""

import anyio

import durable
from durable import connect, current, step, workflow

payments: dict[str, int] = {}  # the bank's, by idempotency key


@step(retry=durable.Retry(first=0))
async def pay(cents: int) -> str:
    key = current().idempotency_key  # the same for every attempt of this call
    if key in payments:
        print("bank: this key has paid already")
        return "paid"
    payments[key] = cents
    print(f"bank: {cents} cents, then the connection broke")
    raise ConnectionError


async def send_mail(order: str) -> str:
    print(f"mail to ana: your order {order}")
    return "mailed"


@step(at_most_once=True)
async def ship(order: str) -> str:
    print(f"courier: parcel {order}")
    return f"parcel-{order}"


@step
async def confirm(order: str) -> str:
    return await durable.once(f"confirm:{order}", send_mail, order)


@workflow
async def buy(order: str) -> str:
    return ", ".join([await pay(500), await confirm(order), await ship(order)])


async def main() -> None:
    async with connect() as client:
        print("buy:", await client.run(buy, "A-1"))
        print("confirm again:", await client.once("confirm:A-1", send_mail, "A-1"))


anyio.run(main)
