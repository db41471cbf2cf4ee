/**
 * The end of an agent as a state machine. `stepEnding` is pure: it takes the state, an event and a view of the
 * surroundings, and returns the next state and actions. `AgentEnding` (agent-ending.ts) has the only queue of events,
 * carries out the actions, and sends their results as events.
 *
 * The agent is alive until the first reason to end. Then it passes through phases, whose order depends on the reason:
 *
 *     drain, fault, refused   draining → closing → reporting → leaving → stopping
 *     drain of another rank   draining → leaving → stopping      (the agent of rank 0 registers the engine)
 *     engine ended            answering → asking → leaving → stopping
 *     engine broken           collecting → reporting → leaving → stopping
 *
 * | phase      | begins with                                          | waits for                                   |
 * | ---------- | ---------------------------------------------------- | ------------------------------------------- |
 * | draining   | DOWN; new requests are refused                       | running requests and lines, or the engine's end |
 * | closing    | returns the lines that still run                     | the batch system's reason, if it was asked  |
 * | answering  | DOWN; repeats and uploads the engine's last output   | responses on their way, the upload          |
 * | asking     |                                                      | the batch system's reason                   |
 * | collecting | DOWN; returns running requests to other nodes        | the engine's last output                    |
 * | reporting  | uploads the end of the log                           | the upload, results of lines                |
 * | leaving    | LEFT                                                 | its acknowledgment                          |
 * | stopping   | SIGTERM to the engine, later SIGKILL                 | the engine's processes                      |
 *
 * A phase ends when each of its waits is done or past its deadline. The first signal during a drain shortens the drain.
 * A second signal forces the end: it ends almost all waits immediately.
 */
import { EXIT_DONE } from '../../../shared/command-line/index.ts';
import { formatDuration } from '../../config/duration.ts';
import { EXIT_ENGINE, EXIT_REFUSED, EXIT_SIGNALLED } from '../../config/exit-codes.ts';
import { readSignal } from '../ending-signals.ts';
import { enterPhase, withDrainDeadline, withForcedWaits } from './ending-phases.ts';
import {
  type EndingAction,
  type EndingEvent,
  type EndingPhase,
  type EndingState,
  type EndingView,
  type EndReason,
  NO_DEADLINE,
  type SignalWarning,
  type Wait,
} from './ending-state.ts';

interface Step {
  state: EndingState;
  actions: EndingAction[];
}

export function stepEnding(before: EndingState, event: EndingEvent, view: EndingView): Step {
  const actions: EndingAction[] = [];
  const state = receive(before, event, view, actions);
  const { reason, joined, begun } = state;
  if (reason === undefined || !joined) return { state, actions };
  return { state: advance(begun ? state : begin(state, reason, view, actions), reason, view, actions), actions };
}

function begin(state: EndingState, reason: EndReason, view: EndingView, actions: EndingAction[]): EndingState {
  const { graceMs } = view.plan('signal');
  const phases = phasesOf(reason, view.registers);
  return enterPhase({ ...state, begun: true, phases, graceMs }, reason, view, actions);
}

/** Enters phases until one of them has to wait. */
function advance(state: EndingState, reason: EndReason, view: EndingView, actions: EndingAction[]): EndingState {
  if (state.phases.length === 0 || !isOver(state, view.now)) return state;
  const next = { ...state, phases: state.phases.slice(1) };
  if (next.phases.length > 0) return advance(enterPhase(next, reason, view, actions), reason, view, actions);
  const code = exitCode(reason, state.firstSignalAt !== undefined);
  actions.push({ kind: 'log', text: 'left' }, { kind: 'ended', code });
  return next;
}

/** When the next wait ends; Infinity if no wait has a deadline. */
export function nextDeadline({ waits, done }: EndingState): number {
  return Math.min(NO_DEADLINE, ...[...waits].flatMap(([wait, until]) => (done.has(wait) ? [] : [until])));
}

function isOver({ waits, done }: EndingState, now: number): boolean {
  return [...waits].every(([wait, until]) => done.has(wait) || until <= now);
}

function receive(state: EndingState, event: EndingEvent, view: EndingView, actions: EndingAction[]): EndingState {
  switch (event.kind) {
    case 'end':
      return state.reason === undefined ? { ...state, reason: event.reason } : state;
    case 'signal':
      return onSignal(state, event, view, actions);
    case 'joined':
      return { ...state, joined: true };
    case 'done':
      return onDone(state, event.wait);
    case 'fate': {
      if (event.fate !== undefined && !hasLeft(state)) {
        actions.push({ kind: 'log', text: `the batch system is ending this job: ${event.fate}` });
        actions.push({ kind: 'down', reason: event.fate });
      }
      return onDone(state, 'fate');
    }
    case 'warning':
      return onWarning(state, event.warning, view, actions);
    case 'left':
      return onDone({ ...state, needsLastWill: !event.acknowledged }, 'goodbye');
    case 'time':
      return state;
  }
}

function hasLeft({ begun, phases: [phase] }: EndingState): boolean {
  return begun && (phase === undefined || phase === 'leaving' || phase === 'stopping');
}

function onDone(state: EndingState, wait: Wait): EndingState {
  // If the engine ended, no request can finish, so the drain ends.
  const waits = wait === 'engine' && state.phases[0] === 'draining' ? new Map<Wait, number>() : state.waits;
  return { ...state, waits, done: new Set([...state.done, wait]) };
}

function onSignal(
  state: EndingState,
  { signal, at }: Extract<EndingEvent, { kind: 'signal' }>,
  view: EndingView,
  actions: EndingAction[],
): EndingState {
  const { kind, cause } = readSignal(signal, state.firstSignalAt, at);
  const next = { ...state, firstSignalAt: state.firstSignalAt ?? at };
  if (kind === 'echo') return next;
  if (kind === 'force') {
    actions.push({ kind: 'log', text: `${signal} again: exiting immediately` }, { kind: 'hurry' });
    return withForcedWaits({ ...next, forced: true }, view.now);
  }
  if (state.reason === undefined) return { ...next, reason: { kind: 'drain', cause, why: signal } };
  // The agent already drains. A SIGTERM means that a SIGKILL is near, unless the batch system reports otherwise.
  if (signal === 'SIGTERM') actions.push({ kind: 'ask-warning' });
  return withDrainDeadline({ ...next, shortUntil: view.now + view.plan(cause).drainMs });
}

function onWarning(state: EndingState, warning: SignalWarning, view: EndingView, actions: EndingAction[]): EndingState {
  if (state.phases[0] !== 'draining') return state;
  const { plan, reason } = warning;
  actions.push({
    kind: 'log',
    text: `the batch system lets the job continue: draining for at most ${formatDuration(plan.drainMs)}`,
  });
  actions.push({ kind: 'down', reason });
  const until = view.now + plan.drainMs;
  return state.shortUntil === NO_DEADLINE
    ? withDrainDeadline({ ...state, drainUntil: until, graceMs: plan.graceMs })
    : withDrainDeadline({ ...state, shortUntil: until });
}

function phasesOf({ kind }: EndReason, registers: boolean): readonly EndingPhase[] {
  if (kind === 'engine') return ['answering', 'asking', 'leaving', 'stopping'];
  if (kind === 'fatal') return ['collecting', 'reporting', 'leaving', 'stopping'];
  if (kind === 'drain' && !registers) return ['draining', 'leaving', 'stopping'];
  return ['draining', 'closing', 'reporting', 'leaving', 'stopping'];
}

function exitCode({ kind }: EndReason, signalled: boolean): number {
  if (kind === 'refused') return EXIT_REFUSED;
  if (signalled) return EXIT_SIGNALLED;
  return kind === 'drain' ? EXIT_DONE : EXIT_ENGINE;
}
