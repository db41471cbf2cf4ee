import { t } from '../texts/index.ts';
import { IconButton } from '../ui/button.tsx';
import { FileText, X } from '../ui/icons.ts';
import type { Attachment } from './conversation.ts';

interface AttachmentListProps {
  attachments: readonly Attachment[];
  /** Removes the attachment with this index; absent: attachments cannot be removed. */
  remove?: (at: number) => void;
}

export function AttachmentList({ attachments, remove }: AttachmentListProps) {
  if (attachments.length === 0) return null;
  return (
    <ul className="flex flex-wrap gap-2">
      {attachments.map((one, n) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: two files may have the same name
        <li key={n} className="flex min-w-0 items-center gap-2 rounded-md border border-line bg-surface p-1.5 text-sm">
          {one.kind === 'image' ? (
            <img src={one.url} alt={one.name} className="thumb size-12 rounded-sm object-cover" />
          ) : (
            <span className="flex size-9 shrink-0 items-center justify-center rounded-sm bg-accent-soft text-accent">
              <FileText className="size-5" aria-hidden />
            </span>
          )}
          {one.kind === 'text' && (
            <span className="flex min-w-0 flex-col pr-1 leading-tight">
              <span className="max-w-52 truncate font-medium">{one.name}</span>
              <span className="text-muted text-xs">
                {[one.pages !== undefined && t.chat.files.pages(one.pages), one.cut && t.chat.files.cut]
                  .filter(Boolean)
                  .join(', ')}
              </span>
            </span>
          )}
          {remove && (
            <IconButton label={t.chat.remove(one.name)} onClick={() => remove(n)}>
              <X />
            </IconButton>
          )}
        </li>
      ))}
    </ul>
  );
}
