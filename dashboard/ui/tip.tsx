import { Tooltip } from '@base-ui/react/tooltip';
import type { ReactElement } from 'react';

/** A few words beside what is pointed at or has the focus. They repeat its name and are never the only place of anything. */
export function Tip({ text, children }: { text: string; children: ReactElement<Record<string, unknown>> }) {
  return (
    <Tooltip.Root>
      <Tooltip.Trigger render={children} />
      <Tooltip.Portal>
        <Tooltip.Positioner sideOffset={6} className="z-50">
          <Tooltip.Popup className="appear max-w-72 rounded-sm bg-ink px-2 py-1 text-canvas text-xs shadow-raised">
            {text}
          </Tooltip.Popup>
        </Tooltip.Positioner>
      </Tooltip.Portal>
    </Tooltip.Root>
  );
}
