import { Tooltip } from '@base-ui/react/tooltip';
import type { ReactElement } from 'react';

/**
 * A tooltip for an element that has the pointer or the focus. It repeats the element's label and never holds the only
 * copy of any information.
 */
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
