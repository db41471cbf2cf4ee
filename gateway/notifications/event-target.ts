import type { EventType } from '../settings/notification-settings.ts';

/** An event on its way to one target. */
export interface EventMessage {
  /** The same at each try. */
  id: string;
  /** JSON: type, timestamp and data. */
  body: string;
}

/** Receives events. */
export interface EventTarget {
  /** Unique among targets. */
  id: string;
  /** For the log. It has no secret: the path of a webhook often is one. */
  label: string;
  /** Undefined: all events. */
  events: readonly EventType[] | undefined;
  /** Returns why the target did not accept the event; undefined: it did. */
  send(message: EventMessage, now: number): Promise<string | undefined>;
}
