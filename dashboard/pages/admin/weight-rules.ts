/** Converts weight rules between the form and the gateway. */
import type { Weights } from '../../api/resources.ts';

export const REQUEST_CLASS_OPTIONS = ['interactive', 'batch', 'short', 'long'] as const;
export const NAMES = ['cluster', 'gpu', 'region', 'session'] as const;

export interface Rule {
  /** React's key of the rule, so that the focus stays in its field while other rules are removed. */
  key: number;
  cluster: string;
  gpu: string;
  region: string;
  session: string;
  class: string;
  weight: string;
  /** The kind of requests to which the rule applies. No field shows it; it is written back unchanged. */
  kind: string | undefined;
}

export function emptyRule(key: number): Rule {
  return { key, cluster: '', gpu: '', region: '', session: '', class: '', weight: '1', kind: undefined };
}

export function written(rule: Weights[number]): Omit<Rule, 'key'> {
  const { cluster = '', gpu = '', region = '', session = '', class: traffic = '', weight, kind } = rule;
  return { cluster, gpu, region, session, class: traffic, weight: String(weight), kind };
}

export function ruleOf(rule: Rule): Weights[number] {
  const traffic = REQUEST_CLASS_OPTIONS.find((one) => one === rule.class);
  const { kind } = rule;
  const named = NAMES.flatMap((name) => (rule[name].trim() === '' ? [] : [[name, rule[name].trim()] as const]));
  return {
    ...Object.fromEntries(named),
    ...(traffic !== undefined && { class: traffic }),
    ...(kind !== undefined && { kind }),
    weight: Number(rule.weight),
  };
}
