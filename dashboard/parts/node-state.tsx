import type { Node } from '../api/schemas.ts';
import { Tag } from './ui.tsx';

export function NodeState({ node }: { node: Pick<Node, 'state' | 'suspected'> }) {
  if (node.state === 'LEFT') return <Tag kind="plain">left</Tag>;
  if (node.suspected) return <Tag kind="bad">silent</Tag>;
  if (node.state === 'SERVING') return <Tag kind="good">serving</Tag>;
  // What it took runs on; nothing new goes there.
  return node.state === 'JOIN' ? <Tag kind="wait">joining</Tag> : <Tag kind="wait">draining</Tag>;
}
