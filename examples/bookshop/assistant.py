"""The bookshop's assistant: tools that know who asks, and refunds that wait for an approval."""

import re
from pathlib import Path
from typing import Any

from starlette.requests import HTTPConnection

from examples.bookshop.login import signed_in_user
from examples.bookshop.orders import USERS, Orders
from stepwell import Agent, Model, ToolContext, UseApprovals, tool
from stepwell.app import AgentApp, AllowedContexts
from stepwell.messages import ToolCall
from stepwell.run_context import Principal, RelatedObject, RunContext
from stepwell.testing import ScriptedModel, call

FREE_REFUND = 15.0
"""Refunds up to this amount need no approval."""


@tool(effect="pure")
def my_orders(context: ToolContext[Orders]) -> str:
    """List the orders of whoever asks."""
    lines = [f"{it.id}: {it.title}, {it.amount:.2f} EUR" for it in context.deps.all()]
    return "\n".join(lines) or "no orders"


@tool(when_unknown="ask")
def refund(order: int, context: ToolContext[Orders]) -> str:
    """Refund an order."""
    found = context.deps.find(order)
    if found is None:
        return f"There is no order {order}."
    if not context.deps.refund(order):
        return f"Order {order} was refunded before."
    return f"Order {order} ({found.title}) is refunded: {found.amount:.2f} EUR."


async def needs_approval(asked: ToolCall, context: RunContext[Orders]) -> bool:
    """Larger refunds of real orders wait for the shop's staff."""
    if asked.name != "refund":
        return False
    order = context.deps.find(asked.arguments["order"])
    return order is not None and order.amount > FREE_REFUND


def authorize(who: Principal, action: str, _: object) -> bool:
    """Customers can't answer approvals, not even those of their own refunds."""
    return action != "executions.answer" or who.has_role("staff")


def instructions(context: RunContext[Orders]) -> str:
    """The system prompt of one run."""
    assert context.principal is not None
    text = f"You are the assistant of a bookshop. You help {context.principal.user_id}."
    if context.related is not None:
        text += f" They are looking at {context.related.url}: {context.related.data}."
    return text


def scripted_model() -> ScriptedModel:
    """A stand-in for a model, so that the shop runs without a key."""

    def turn(request: Any) -> Any:
        last = request.messages[-1]
        if last.is_tool():
            return last.text
        if number := re.search(r"refund\D*(\d+)", last.text, re.IGNORECASE):
            return call("refund", order=int(number[1]))
        if "order" in last.text.lower():
            return call("my_orders")
        return "I can list your orders and refund one: say 'refund order 17'."

    return ScriptedModel(turn)


def make_assistant(folder: Path, model: Model | str | None = None) -> AgentApp:
    """The assistant as an application that the shop mounts; its database is beside the shop's."""
    shop = folder / "shop.db"

    def orders_of(user: str) -> Orders:
        return Orders(shop, user, USERS[user])

    async def authenticate(request: HTTPConnection) -> Principal | None:
        user = signed_in_user(request)
        if user is None:
            return None
        role = USERS[user]
        return Principal(
            user_id=user, tenant_id="bookshop", roles=(role,), is_admin=role == "staff"
        )

    def resolve_order(who: Principal, order_id: str) -> RelatedObject | bool:
        number = int(order_id) if order_id.isdecimal() else 0
        order = orders_of(who.user_id).find(number)
        data = order and {"title": order.title, "amount": order.amount}
        return RelatedObject(url=f"/orders/{order_id}", data=data) if order else False

    def make_deps(context: RunContext[Any]) -> Orders:
        assert context.principal is not None
        return orders_of(context.principal.user_id)

    agent = Agent(
        model or scripted_model(),
        tools=[my_orders, refund],
        capabilities=[UseApprovals(when=needs_approval)],
        system_prompt=instructions,
    )
    return AgentApp(
        {"assistant": agent},
        db=f"sqlite:///{folder / 'assistant.db'}",
        authenticate=authenticate,
        authorize=authorize,
        contexts=AllowedContexts({"order": resolve_order}),
        deps=make_deps,
    )
