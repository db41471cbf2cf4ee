/** Lets a page put content below the navigation, as the chat does with its conversations. */
import { createContext, type ReactNode, useContext, useState } from 'react';
import { createPortal } from 'react-dom';

interface Slot {
  /** The element that receives the content; null: there is no sidebar, as on a phone. */
  place: HTMLElement | null;
  setPlace: (place: HTMLElement | null) => void;
}

const SlotContext = createContext<Slot>({ place: null, setPlace: () => undefined });

export function SidebarSlotProvider({ children }: { children: ReactNode }) {
  const [place, setPlace] = useState<HTMLElement | null>(null);
  return <SlotContext value={{ place, setPlace }}>{children}</SlotContext>;
}

/** The place below the navigation. The shell renders it. */
export function SidebarSlot() {
  const { setPlace } = useContext(SlotContext);
  return <div ref={setPlace} className="flex min-h-0 flex-1 flex-col" />;
}

/** Puts its children into `SidebarSlot`. A page renders it. */
export function InSidebar({ children }: { children: ReactNode }) {
  const { place } = useContext(SlotContext);
  return place === null ? null : createPortal(children, place);
}
