import { SchedulerError } from '../errors.ts';

/** What a template may name as `{{name}}`. */
interface TemplateValues {
  model: string;
  pool: string;
  gpu: string;
  gateway: string;
  [own: string]: string;
}

/**
 * Values end up in a script that a shell reads: none may hold anything but what model names, host names and URLs are made of. A name
 * from the network with `$(…)` in it is refused here, not quoted.
 */
const SAFE = /^[A-Za-z0-9][A-Za-z0-9._/:@=,+-]{0,255}$/;
const PLACEHOLDER = /\{\{([^{}]*)\}\}/g;

/** Longest script that is handed to sbatch. */
const TEMPLATE_MAX_CHARS = 64 * 1024;

/** `engine`: values of our own making, which may have blanks. */
export function render(template: string, given: TemplateValues, engine: Readonly<Record<string, string>>): string {
  const values: Record<string, string> = { ...given, ...engine };
  if (template.length > TEMPLATE_MAX_CHARS)
    throw new SchedulerError('bad_input', `the template is longer than ${TEMPLATE_MAX_CHARS} characters`);
  if (!template.startsWith('#!'))
    throw new SchedulerError('bad_input', 'the template must begin with #!, as sbatch asks');
  return template.replace(PLACEHOLDER, (_, inner: string) => {
    const name = inner.trim();
    const value = Object.hasOwn(values, name) ? values[name] : undefined;
    if (value === undefined)
      throw new SchedulerError(
        'bad_input',
        `the template names {{${name}}}; there are ${Object.keys(values).join(', ')}`,
      );
    if (!Object.hasOwn(engine, name) && !SAFE.test(value))
      throw new SchedulerError(
        'bad_input',
        `${name} ${JSON.stringify(value.slice(0, 80))} has characters that must not reach a shell`,
      );
    return value;
  });
}
