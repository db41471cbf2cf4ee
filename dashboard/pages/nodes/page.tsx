import { useRoute } from 'wouter';
import { NodePage } from './node.tsx';
import { NodeList } from './node-list.tsx';

/** `#/nodes`, and `#/nodes/SESSION` for a single node. */
export default function NodesPage() {
  const [isOne, at] = useRoute('/nodes/:session');
  return isOne ? <NodePage key={at.session} session={at.session} /> : <NodeList />;
}
