import clsx from 'clsx';
import { type DragEvent, type ReactNode, useState } from 'react';

interface DropZoneProps {
  /** The text that is shown while files are dragged over it. */
  label: string;
  add: (files: File[]) => void;
  className?: string;
  children: ReactNode;
}

const hasFiles = (event: DragEvent) => event.dataTransfer.types.includes('Files');

/** Accepts dropped files. A button in it must offer the same to the keyboard. */
export function DropZone({ label, add, className, children }: DropZoneProps) {
  const [over, setOver] = useState(false);
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: a button in it does the same by keyboard
    <div
      className={clsx('relative', className)}
      onDragOver={(event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => event.currentTarget.contains(event.relatedTarget as Node | null) || setOver(false)}
      onDrop={(event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        setOver(false);
        add([...event.dataTransfer.files]);
      }}
    >
      {children}
      {over && (
        <div className="pointer-events-none absolute inset-2 z-20 flex items-center justify-center rounded-lg border-2 border-accent border-dashed bg-accent-soft/90 font-semibold text-accent text-lg">
          {label}
        </div>
      )}
    </div>
  );
}
