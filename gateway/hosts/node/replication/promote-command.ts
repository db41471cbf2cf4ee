/** `otela-gateway promote`: see promote.ts. */
import {
  type Command,
  EXIT_DONE,
  type Flags,
  JSON_FLAG,
  parseLine,
  UsageError,
} from '../../../../shared/command-line/index.ts';
import { refuseBound } from '../postgresql/database-binding.ts';
import { promote } from './promote.ts';

const FLAGS = {
  data: { default: './data', value: 'DIR', takes: 'directory', help: 'data directory of the follower' },
  url: { value: 'URL', help: 'URL of this gateway, which the other gateways then follow' },
  'root-key': {
    value: 'FILE',
    takes: 'file',
    help: 'file with the root key of the institution (root.key of its primary); default: DATA/issuer/root.key',
  },
  ...JSON_FLAG,
} as const satisfies Flags;

export const PROMOTE_COMMAND: Command = {
  summary: 'promote a follower to the primary',
  examples: `--data DIR --url URL [--root-key FILE]

  otela-gateway promote --data ./gw2 --url https://gw2.example.org --root-key /media/usb/root.key

A running gateway becomes the primary within a second. The former primary follows it as soon as it learns of the promotion. Its changes
after the split are not merged; they are listed in its DATA/split-EPOCH.jsonl.`,
  flags: FLAGS,
  run: async (args) => {
    const { values } = parseLine(args, FLAGS);
    if (values.url === undefined || !URL.canParse(values.url))
      throw new UsageError('promote needs --url: the address of this gateway');
    refuseBound(values.data, 'Such a gateway has no followers.');
    const rootKey = values['root-key'];
    const done = await promote({ data: values.data, url: values.url, ...(rootKey === undefined ? {} : { rootKey }) });
    console.log(
      values.json
        ? JSON.stringify(done)
        : `primary of its institution, epoch ${done.epoch}; previous primary: ${done.former}`,
    );
    return EXIT_DONE;
  },
};
