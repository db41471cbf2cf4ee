/** The state of a run's pod, from the API server's description. */
import * as z from 'zod';
import { printable } from '../../../shared/terminal/printable.ts';
import { tryParseJson } from '../../../shared/text/parse-json.ts';
import { CONTAINER } from './pod-manifest.ts';

export type PodState =
  | { kind: 'missing' }
  /** `said`: why it does not run yet. */
  | { kind: 'waits'; said: string }
  | { kind: 'running'; node: string }
  | { kind: 'ended'; said: string }
  /** Its image cannot be fetched or started. Kubernetes tries again, but without an end. */
  | { kind: 'stuck'; said: string }
  /** It has the name, but was not created for this run. */
  | { kind: 'foreign' };

const SAID_MAX = 400;

const reasonSchema = z.object({ reason: z.string().default(''), message: z.string().default('') });
const podSchema = z.object({
  metadata: z.object({
    deletionTimestamp: z.string().optional(),
    labels: z.record(z.string(), z.string()).default({}),
  }),
  spec: z.object({ nodeName: z.string().default('') }).optional(),
  status: z.object({
    phase: z.string().default(''),
    reason: z.string().default(''),
    message: z.string().default(''),
    conditions: z
      .array(reasonSchema.extend({ type: z.string(), status: z.string() }))
      .max(64)
      .default([]),
    containerStatuses: z
      .array(
        z.object({
          name: z.string(),
          state: z
            .object({
              waiting: reasonSchema.optional(),
              running: z.unknown().optional(),
              terminated: reasonSchema.extend({ exitCode: z.number().optional() }).optional(),
            })
            .default({}),
        }),
      )
      .max(16)
      .default([]),
  }),
});

/** Reasons of the kubelet for a container that does not start without another image or command. */
const STUCK =
  /^(?:ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull|CreateContainer(?:Config)?Error|RunContainerError|CrashLoopBackOff)$/;

/**
 * Undefined: it cannot be read.
 * @param out of `kubectl get pod --ignore-not-found -o json`; empty if there is no pod
 * @param labels that the run's pod has
 */
export function parsePodState(out: string, labels: Readonly<Record<string, string>>): PodState | undefined {
  if (out.trim() === '') return { kind: 'missing' };
  const read = podSchema.safeParse(tryParseJson(out));
  if (!read.success) return undefined;
  const { metadata, spec, status } = read.data;
  if (Object.entries(labels).some(([name, value]) => metadata.labels[name] !== value)) return { kind: 'foreign' };
  const state = status.containerStatuses.find(({ name }) => name === CONTAINER)?.state;
  if (metadata.deletionTimestamp !== undefined) return { kind: 'ended', said: 'it is being deleted' };
  if (status.phase === 'Succeeded' || status.phase === 'Failed' || state?.terminated !== undefined) {
    const { terminated } = state ?? {};
    const code = terminated?.exitCode === undefined ? '' : `exit code ${terminated.exitCode}`;
    return { kind: 'ended', said: text(status.message, status.reason, terminated?.reason, code) || status.phase };
  }
  if (status.phase === 'Running' && state?.running !== undefined)
    return { kind: 'running', node: spec?.nodeName ?? '' };
  const { waiting } = state ?? {};
  if (waiting !== undefined && STUCK.test(waiting.reason))
    return { kind: 'stuck', said: text(waiting.reason, waiting.message) };
  const unscheduled = status.conditions.find(({ type, status: is }) => type === 'PodScheduled' && is === 'False');
  return {
    kind: 'waits',
    said: text(unscheduled?.message, waiting?.reason, waiting?.message) || 'it has no node yet',
  };
}

/** One line of the parts that say something. */
function text(...parts: (string | undefined)[]): string {
  return printable(parts.filter((part) => part !== undefined && part !== '').join(': '))
    .replaceAll(/\s+/g, ' ')
    .slice(0, SAID_MAX);
}
