/** Which requests are in the workload trace; a setting of the gateway. */
import * as z from 'zod';

/** Name of the setting. */
export const TRACE = 'trace';

/** Maximum names in one list of exceptions, so that every look-up of a key can read the setting. */
const EXCEPTIONS_MAX = 1_000;
const ids = z.array(z.string().min(1).max(64)).max(EXCEPTIONS_MAX).default([]);

export const traceSchema = z.strictObject({
  /** True: all requests are in the trace, those of keys without a project and of agents' ingresses, too. */
  all: z.boolean().default(false),
  /** True: the trace of `all` also shows which prompts begin with the same text. */
  prefixes: z.boolean().default(false),
  /** Their requests are never in the trace. */
  except: z.strictObject({ projects: ids, users: ids, keys: ids }).prefault({}),
});
export type TraceSettings = z.infer<typeof traceSchema>;

export const TRACE_DEFAULTS: TraceSettings = traceSchema.parse({});

/** Parses the stored setting. A setting that cannot be read traces nothing. */
export function traceSettingsOf(stored: unknown): TraceSettings {
  return traceSchema.safeParse(stored ?? {}).data ?? TRACE_DEFAULTS;
}

interface TracedAccount {
  keyId: string;
  userId: string | undefined;
  /** The key's project; null: it has none. */
  project: { id: string; trace: boolean; tracePrefixes: boolean } | null;
}

/** Returns whether requests of an account are in the trace, and with their prefix buckets. */
export function tracingOf(
  { all, prefixes, except }: TraceSettings,
  { keyId, userId, project }: TracedAccount,
): { traced: boolean; prefixes: boolean } {
  const isExcepted =
    except.keys.includes(keyId) ||
    (userId !== undefined && except.users.includes(userId)) ||
    (project !== null && except.projects.includes(project.id));
  if (isExcepted) return { traced: false, prefixes: false };
  const ofProject = project?.trace === true;
  return { traced: all || ofProject, prefixes: (all && prefixes) || (ofProject && project.tracePrefixes) };
}
