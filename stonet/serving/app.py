"""The application: every route with what it takes; `service.py` and its neighbours answer."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from stonet._version import __version__
from stonet.errors import StonetError
from stonet.serving.forecasts import forecast
from stonet.serving.gate import Gate
from stonet.serving.guard import Guard, Policy
from stonet.serving.messages import ForecastRequest
from stonet.serving.metrics import Metrics
from stonet.serving.numbers import encode
from stonet.serving.page_files import PageFiles
from stonet.serving.refusal import Refused, document, status_of
from stonet.serving.routes import add_routes
from stonet.serving.service import Service

LOGGER = logging.getLogger(__name__)
DESCRIPTION = "Forecasts of a trained model from the latest observations, anywhere and at any time."
WARM_QUANTILES = [0.05, 0.25, 0.75, 0.95]


def create_app(
    service: Service,
    policy: Policy = Policy(),  # noqa: B008  frozen
    page: PageFiles | None = None,
    while_serving: Sequence[Callable[[], AbstractContextManager[object]]] = (),
) -> FastAPI:
    """The application of a service.

    Args:
        service: answers.
        policy: who may ask.
        page: files of the page; None: those of the package.
        while_serving: contexts that are entered after the first forecast, and left at the end.

    Example:
        >>> app = create_app(Service(Run.load(Path("runs/uk")), stonet.read("uk.nc")))
    """
    gate, metrics = Gate(service.limits), Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await gate.run(lambda _: warm_up(service))
        with ExitStack() as contexts:
            for context in while_serving:
                contexts.enter_context(context())
            yield
        gate.close()

    app = FastAPI(
        title="stonet",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    add_routes(app, service, gate, metrics, page or PageFiles())
    app.add_middleware(Guard, policy=policy, limits=service.limits, metrics=metrics)
    _add_handlers(app)
    return app


def warm_up(service: Service) -> None:
    """Make the first forecast of all stations, so that the next ones are quick.

    Args:
        service: may have nothing to forecast from yet.
    """
    try:
        quantiles = WARM_QUANTILES if service.run.calibration is not None else None
        forecast(ForecastRequest(quantiles=quantiles), service.issue(), service.limits)
    except StonetError as error:
        LOGGER.warning("There is no forecast yet: %s", error)


def _add_handlers(app: FastAPI) -> None:
    """Errors as JSON with a message."""

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, StonetError)
        headers = error.headers if isinstance(error, Refused) else None
        content = encode(document(type(error).__name__, str(error)))
        return Response(content, status_of(error), headers, "application/json")

    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        content = encode(document("Refused", explained(error)))
        return Response(content, 422, media_type="application/json")

    def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = f"{error.detail}: {request.method} {request.url.path[:200]}. See /openapi.json."
        content = encode(document("Refused", message))
        return Response(content, error.status_code, error.headers, "application/json")

    def bug(request: Request, error: Exception) -> Response:
        content = encode(document("Internal", f"{type(error).__name__}. This is a bug."))
        return Response(content, 500, media_type="application/json")

    app.add_exception_handler(StonetError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, bug)


def explained(error: RequestValidationError) -> str:
    """What is wrong in a request: its first defects, with their places.

    Args:
        error: of pydantic.
    """
    found = error.errors()
    parts = [
        f"{'.'.join(str(part)[:40] for part in one['loc'])}: {one['msg']}" for one in found[:3]
    ]
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return f"The request does not fit: {'; '.join(parts)}{more}. /openapi.json has its form."
