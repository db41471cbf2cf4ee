import { useRoute } from 'wouter';
import { NodeList } from './list.tsx';
import { NodePage } from './node.tsx';

/** `#/nodes`, and `#/nodes/SESSION` for a single node. */
export default function NodesPage() {
  const [isOne, at] = useRoute('/nodes/:session');
  return isOne ? <NodePage key={at.session} session={at.session} /> : <NodeList />;
}
