"""Tests of a workflow: no bucket, no waiting, and a crash at every call of the store.

Run: python -m pytest -q -p no:cacheprovider examples/test_checkout.py
Prints:
    ... [100%]
    4 passed in ...
"""

from __future__ import annotations

import durable
from durable import current, step, workflow
from durable.testing import BlockingEnvironment, crash_at_every_call, run

charged: dict[str, int] = {}  # stands for the bank: what it has seen, by idempotency key


@step
def charge(order: str, cents: int) -> str:
    charged[current().idempotency_key] = cents
    return f"receipt for {order}"


@step(attempts=5)
def send_mail(to: str, text: str) -> None: ...


@workflow(name="order")
async def checkout(order: str, customer: str) -> str:
    receipt = await charge.call(order, 500)
    await durable.sleep("14d")
    await send_mail.call(customer, f"how do you like {order}?")
    return receipt


def test_it_returns_the_receipt() -> None:
    assert run(checkout, "A-1", "ada") == "receipt for A-1"


def test_it_writes_after_two_weeks(durable_env: BlockingEnvironment) -> None:
    mail = durable_env.stub(send_mail, returns=None)
    durable_env.client.start(checkout, "A-1", "ada")
    durable_env.advance("13d")
    assert not mail.calls
    durable_env.advance("1d")
    assert mail.calls[0].args == ("ada", "how do you like A-1?")


def test_it_survives_a_broken_mail_server(durable_env: BlockingEnvironment) -> None:
    durable_env.stub(send_mail, raises=ConnectionError("no answer"))
    handle = durable_env.client.start(checkout, "A-1", "ada")
    durable_env.advance("15d")
    assert durable_env.body_runs(handle) == {"charge.1": 1, "send_mail.1": 5}


def test_it_survives_a_crash_at_every_call() -> None:
    tested = crash_at_every_call.options(prepare=lambda env: charged.clear())
    report = tested(checkout, "A-1", "ada")
    assert report.value == "receipt for A-1"
    assert len(charged) == 1
