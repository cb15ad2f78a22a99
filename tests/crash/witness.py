"""Tells the checker of the simulation what the workers said."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.machine import Machine
from penstock.core.message import PublishedMessage
from penstock.core.receipt import Receipt
from penstock.core.settling import Outcome
from penstock.core.subscription import Subscription
from tests.crash import report
from tests.simulation.checker import Checker
from tests.simulation.history import Call, History


class Witness:
    """Hears of one life after the other. The machine is the one found after its end."""

    def __init__(self, history: History, checker: Checker) -> None:
        self._history = history
        self._checker = checker
        self._calls: dict[int, tuple[Call, report.Line]] = {}
        self.published = 0
        self.acked = 0

    def hear(self, lines: Sequence[report.Line], machine: Machine) -> None:
        """An answer may come in a later piece than its call."""
        calls = self._calls
        for line in lines:
            match line:
                case report.Publish(call=number, numbers=numbers):
                    call = self._ask(f"publish {report.QUEUE} {numbers}", line.at_ns)
                    messages = [report.sent(n, call, line.keyed) for n in numbers]
                    self._checker.sent.update((s.number, s) for s in messages)
                    calls[number] = call, line
                case report.Receive(call=number, subscription=name):
                    call = self._ask(f"receive {report.QUEUE}/{name}", line.at_ns)
                    calls[number] = call, line
                case report.Ack(call=number, subscription=name, receipts=receipts):
                    call = self._ask(f"ack {report.QUEUE}/{name} {receipts}", line.at_ns)
                    self._acking(call, _subscription(machine, name), receipts)
                    calls[number] = call, line
                case report.Lose(call=number):
                    call = self._ask("*** lose", line.at_ns)
                    self._checker.losses.append(call)
                    calls[number] = call, line
                case report.Rebuild(call=number):
                    call = self._ask("*** rebuild", line.at_ns)
                    self._checker.rebuilds.append(call)
                    calls[number] = call, line
                case report.Lost(call=number) | report.Rebuilt(call=number):
                    self._history.answer(calls[number][0])
                case report.Published(call=number, entries=entries):
                    self._published(*calls[number], entries)
                case report.Received(call=number):
                    self._received(*calls[number], line, machine)
                case report.Acked(call=number):
                    self._acked(*calls[number], line, machine)

    def _ask(self, what: str, at_ns: int) -> Call:
        return Call(what=what, asked=self._history.note(f"? {what}"), asked_ns=at_ns)

    def _published(
        self, call: Call, asked: report.Line, entries: Sequence[tuple[int, str]]
    ) -> None:
        assert isinstance(asked, report.Publish)
        self._history.answer(call, str(entries))
        messages = [self._checker.sent[number] for number in asked.numbers]
        result = [PublishedMessage(index, id) for index, id in entries]
        self._checker.published(call, messages, result)
        self.published += len(entries)

    def _acking(self, call: Call, subscription: Subscription, receipts: Sequence[str]) -> None:
        reader = self._checker.reader(subscription)
        for receipt in receipts:
            trail = reader.trails[Receipt.parse(receipt).index]
            trail.acks.append(call)
            trail.enders.append(call)

    def _received(
        self, call: Call, asked: report.Line, line: report.Received, machine: Machine
    ) -> None:
        assert isinstance(asked, report.Receive)
        # The store looked at its clock some time in between: the later time accuses nobody wrongly.
        call.asked_ns = line.at_ns
        got = [f"{d.receipt} ({d.deliveries})" for d in line.deliveries]
        self._history.answer(call, " ".join(got) or "nothing")
        subscription = _subscription(machine, asked.subscription)
        self._checker.delivered(call, subscription, subscription.parents, line.deliveries)

    def _acked(self, call: Call, asked: report.Line, line: report.Acked, machine: Machine) -> None:
        assert isinstance(asked, report.Ack)
        self._history.answer(call, " ".join(line.outcomes))
        reader = self._checker.reader(_subscription(machine, asked.subscription))
        for receipt, outcome in zip(asked.receipts, line.outcomes, strict=True):
            index = Receipt.parse(receipt).index
            if outcome in (Outcome.DONE.value, Outcome.ALREADY_SETTLED.value):
                reader.settled(call, index, receipt, done=outcome == Outcome.DONE.value)
                self.acked += 1
            else:
                # Somebody else has it: it did nothing, and cannot any more.
                reader.trails[index].acks.remove(call)
                reader.trails[index].enders.remove(call)


def _subscription(machine: Machine, name: str) -> Subscription:
    return machine.subscription(report.QUEUE, name)
