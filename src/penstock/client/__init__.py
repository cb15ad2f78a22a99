"""The client: it talks HTTP to a Penstock server, and imports none of the server's code."""

from __future__ import annotations

from penstock.client.app import App
from penstock.client.async_client import AsyncClient
from penstock.client.consumer import Consumer
from penstock.client.errors import (
    ClientClosed,
    ClientError,
    Forbidden,
    InvalidSignature,
    ServerFailed,
    TooManyConnections,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from penstock.client.health import Component, Health
from penstock.client.message import DeadLetter, Delivery, Message, Published, ViewedMessage
from penstock.client.retry import Retry
from penstock.client.sync_client import Client
from penstock.client.user import User
from penstock.client.webhooks import WebhookVerifier
from penstock.client.worker import Worker, WorkerSettings

__all__ = [
    "App",
    "AsyncClient",
    "Client",
    "ClientClosed",
    "ClientError",
    "Component",
    "Consumer",
    "DeadLetter",
    "Delivery",
    "Forbidden",
    "Health",
    "InvalidSignature",
    "Message",
    "Published",
    "Retry",
    "ServerFailed",
    "TooManyConnections",
    "TooManyRequests",
    "Unauthorized",
    "Unreachable",
    "User",
    "ViewedMessage",
    "WebhookVerifier",
    "Worker",
    "WorkerSettings",
]
