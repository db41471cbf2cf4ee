import { some } from './some.ts';

export const models = {
  about: 'What is served now, by whom, and how busy it is.',
  none: 'No model is served at this moment. A provider adds one by wrapping a serve command with otela-agent.',
  serving: (n: number) => `${some(n, 'node')} serving`,
  notServed: 'not served now',
  loading: (n: number) => `${n} loading`,
  silent: (n: number) => `${n} silent`,
  context: 'Context',
  tokens: (n: string) => `${n} tokens`,
  weights: 'Weights',
  load: 'Load',
  rate: 'Tokens/s now',
  running: (running: string, waiting: string) => `${running} running, ${waiting} waiting`,
  unknownLoad: 'Nothing was heard of its engines within 5 seconds, or they do not tell.',
  nodesOf: (model: string) => `Nodes of ${model}`,
  columns: { provider: 'Provider', site: 'Site', gpus: 'GPUs', timeLeft: 'Time left' },
  chat: 'Chat',
  code: 'Code',
  use: (model: string) => `Use ${model}`,
  language: 'Language',
};

export const usage = {
  about: 'The last 30 days, UTC.',
  by: 'By',
  none: 'Nothing was used yet.',
  title: (group: string) => `Usage by ${group}`,
  tokens: 'Tokens',
  read: 'read',
  written: 'written',
  csv: 'CSV',
  groups: { day: 'day', model: 'model', key: 'key', user: 'user', project: 'project', provider: 'provider' },
  columns: {
    requests: 'Requests',
    failed: 'Failed',
    read: 'Tokens read',
    written: 'Tokens written',
    first: 'First token',
    whole: 'Whole answer',
  },
};

export const modelStates = {
  idle: 'ready',
  running: (n: number) => `${some(n, 'request')} running`,
  busy: (n: number) => `busy: ${some(n, 'request')} waiting`,
  loading: 'loading',
  silent: 'its nodes are silent',
  notServed: 'not served now',
};
