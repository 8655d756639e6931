"""A small product with an assistant in it: a bookshop with its own login and its own orders.

    ./dev python -m examples.bookshop.app

serves it on http://127.0.0.1:8402. Sign in as ada or bob (customers) or cleo (staff), list your
orders, and ask the assistant to refund one. Small refunds happen at once; larger ones wait until
cleo approves them. The model's words are scripted; ``--model anthropic:...`` takes a real one.
"""

import argparse
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Form, HTTPException, Request
from fastapi.responses import FileResponse, RedirectResponse, Response

from examples.bookshop.assistant import make_assistant
from examples.bookshop.login import COOKIE, sign_in, signed_in_user
from examples.bookshop.orders import USERS, Orders, make_database
from stepwell import Model

PAGES = Path(__file__).parent
PORT = 8402


def make_shop(folder: Path, model: Model | str | None = None) -> FastAPI:
    """The shop with its assistant; both keep their data in that folder."""
    make_database(folder / "shop.db")
    assistant = make_assistant(folder, model)
    shop = FastAPI(title="Bookshop", lifespan=assistant.lifespan)

    @shop.get("/")
    async def home() -> FileResponse:
        """The page."""
        return FileResponse(PAGES / "page.html")

    @shop.get("/page.js")
    async def script() -> FileResponse:
        """The script of the page."""
        return FileResponse(PAGES / "page.js", media_type="text/javascript")

    @shop.post("/login")
    async def login(user: Annotated[str, Form()]) -> Response:
        """Sign in by name."""
        if user not in USERS:
            raise HTTPException(403, f"There is no user {user!r}.")
        response = RedirectResponse("/", status_code=303)
        sign_in(response, user)
        return response

    @shop.post("/logout")
    async def logout() -> Response:
        """Sign out."""
        response = RedirectResponse("/", status_code=303)
        response.delete_cookie(COOKIE)
        return response

    @shop.get("/orders")
    async def orders(request: Request) -> dict[str, object]:
        """Who is signed in, and their orders."""
        user = signed_in_user(request)
        if user is None:
            raise HTTPException(401, "Sign in first.")
        visible = Orders(folder / "shop.db", user, USERS[user]).all()
        return {"user": user, "role": USERS[user], "orders": [vars(it) for it in visible]}

    shop.mount("/assistant", assistant)
    return shop


def main() -> None:
    """Serve the shop."""
    parser = argparse.ArgumentParser(description="A bookshop with an assistant.")
    parser.add_argument("--model", help="a real model, such as anthropic:claude-sonnet-4-5")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the databases are")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print(f"The bookshop is open: http://127.0.0.1:{PORT}")
    uvicorn.run(make_shop(options.folder, options.model), port=PORT, ws="websockets-sansio")


if __name__ == "__main__":
    main()
