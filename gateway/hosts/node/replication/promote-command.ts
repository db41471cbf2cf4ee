/** `otela-gateway promote`. */
import {
  type Command,
  EXIT_DONE,
  type Flags,
  JSON_FLAG,
  parseLine,
  UsageError,
} from '../../../../shared/command-line/index.ts';
import { promote } from './promote.ts';

const FLAGS = {
  data: { default: './data', value: 'DIR', takes: 'directory', help: 'of the follower' },
  url: { value: 'URL', help: 'where it answers: the others follow it there' },
  'root-key': {
    value: 'FILE',
    takes: 'file',
    help: 'a copy of root.key; left out: DATA/issuer/root.key',
  },
  ...JSON_FLAG,
} as const satisfies Flags;

export const PROMOTE_COMMAND: Command = {
  summary: 'makes a gateway that follows the first one',
  examples: `--data DIR --url URL [--root-key FILE]

  otela-gateway promote --data ./gw2 --url https://gw2.example.org --root-key /media/usb/root.key

A running gateway takes it up within a second. The former first follows this one as soon as it hears of it; what was changed there after
the split is listed in its DATA/split-EPOCH.jsonl and not merged.`,
  flags: FLAGS,
  run: async (args) => {
    const { values } = parseLine(args, FLAGS);
    if (values.url === undefined || !URL.canParse(values.url))
      throw new UsageError('promote needs --url: where this gateway answers');
    const rootKey = values['root-key'];
    const done = await promote({ data: values.data, url: values.url, ...(rootKey === undefined ? {} : { rootKey }) });
    console.log(
      values.json ? JSON.stringify(done) : `first of its institution, epoch ${done.epoch}; before: ${done.former}`,
    );
    return EXIT_DONE;
  },
};
