"""A payment, an email and a call of an API, each guarded in its way.

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

payments: dict[str, int] = {}  # the bank's: which attempt came first, by idempotency key


@step(retry=durable.Retry(first=0))  # the bank drops repeated keys
async def pay(cents: int) -> str:
    key = current().idempotency_key  # the same for every attempt
    if payments.setdefault(key, current().attempt) == current().attempt:
        print(f"bank: {cents} cents, then the connection broke")
        raise ConnectionError
    print("bank: this key has paid already")
    return "paid"


async def send_mail(order: str) -> str:
    print(f"mail to ana: your order {order}")
    return "mailed"


@step(at_most_once=True)  # nothing else guards the courier
async def ship(order: str) -> str:
    print(f"courier: parcel {order}")
    return f"parcel-{order}"


@step  # whoever asks for the mail
async def confirm(order: str) -> str:
    return await durable.once(f"confirm:{order}", send_mail, order)


@workflow
async def buy(order: str) -> str:
    return ", ".join([await pay(500), await confirm(order), await ship(order)])


async def main() -> None:
    async with connect() as client:
        said = await client.run(buy, "A-1")
        again = await client.once("confirm:A-1", send_mail, "A-1")
    print(f"buy: {said}\nconfirm again: {again}")


anyio.run(main)
