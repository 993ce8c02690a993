"""No async anywhere: a workflow of plain functions, run from a plain script.

Run:     python examples/sync_script.py
Prints:
         2026-11-29: 3 orders
         2026-11-29: total 60
         recorded: 60
"""

from durable import step, sync, workflow


@step
def read_orders(day: str) -> list[int]:
    print(f"{day}: 3 orders")
    return [10, 20, 30]


@step
def write_total(day: str, total: int) -> None:
    print(f"{day}: total {total}")


@workflow
def nightly(day: str) -> int:
    total = sum(read_orders(day))
    write_total(day, total)
    return total


if __name__ == "__main__":
    with sync.connect() as client:
        total = client.run(nightly.options(id="nightly-2026-11-29"), "2026-11-29")
        print(f"recorded: {total}")
