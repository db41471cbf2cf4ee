/** The logged-in user and the live registry, for every page. */
import { createContext, type ReactNode, useContext, useEffect, useState } from 'react';
import { type Live, NOT_YET, watchNodes } from '../api/live-registry.ts';
import type { Me } from '../api/schemas.ts';

const MeContext = createContext<Me | undefined>(undefined);
const LiveContext = createContext<Live>(NOT_YET);

export function SessionProvider({ me, children }: { me: Me; children: ReactNode }) {
  const [live, setLive] = useState(NOT_YET);
  useEffect(() => watchNodes(setLive), []);
  return (
    <MeContext value={me}>
      <LiveContext value={live}>{children}</LiveContext>
    </MeContext>
  );
}

/** @throws Error outside a session */
export function useMe(): Me {
  const me = useContext(MeContext);
  if (me === undefined) throw new Error('no user is logged in');
  return me;
}

export function useLive(): Live {
  return useContext(LiveContext);
}
