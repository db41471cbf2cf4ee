import type { Node } from '../api/schemas.ts';
import { t } from '../texts/index.ts';
import { Tag } from '../ui/feedback.tsx';

const { states } = t.nodes;

export function NodeState({ node }: { node: Pick<Node, 'state' | 'suspected'> }) {
  if (node.state === 'LEFT') return <Tag kind="plain">{states.left}</Tag>;
  if (node.suspected) return <Tag kind="bad">{states.silent}</Tag>;
  if (node.state === 'SERVING') return <Tag kind="good">{states.serving}</Tag>;
  // A draining node finishes its running requests and takes no new ones.
  return <Tag kind="wait">{node.state === 'JOIN' ? states.joining : states.draining}</Tag>;
}
