import type { ReactNode } from 'react';
import { useStickToBottom } from 'use-stick-to-bottom';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { ModelLoad } from '../api/schemas.ts';
import type { CatalogueModel } from '../parts/model-catalog.ts';
import { t } from '../texts/index.ts';
import { IconButton } from '../ui/button.tsx';
import { ArrowDown } from '../ui/icons.ts';
import { shownBranch, type Thread } from './conversation.ts';
import { type TurnActions, TurnView } from './turn-view.tsx';

interface ThreadViewProps {
  label: string;
  thread: Thread;
  busy: boolean;
  models: ReadonlyMap<string, CatalogueModel>;
  loads: ReadonlyMap<string, ModelLoad>;
  actions: TurnActions;
  /** Shown above the turns if there are two threads. */
  head?: ReactNode;
}

/** One model's side of a conversation. It follows the streamed text until the user scrolls away. */
export function ThreadView({ label, thread, busy, models, loads, actions, head }: ThreadViewProps) {
  const { scrollRef, contentRef, isAtBottom, scrollToBottom } = useStickToBottom({
    initial: 'instant',
    resize: 'instant',
  });
  return (
    <section aria-label={label} className="pane relative flex min-h-0 min-w-0 flex-1 flex-col">
      {head}
      <div ref={scrollRef} className="min-h-0 flex-1 overflow-y-auto" tabIndex={-1}>
        <div ref={contentRef} className="mx-auto w-full max-w-3xl px-4 pt-4 pb-10">
          <ol className="turns flex flex-col gap-6" aria-live="polite" aria-relevant="additions">
            {shownBranch(thread).map(({ turn, at, branches }) => (
              <TurnView
                key={turn.id}
                turn={turn}
                at={at}
                all={branches.length}
                busy={busy}
                actions={actions}
                model={turn.state === 'streaming' ? models.get(thread.model) : undefined}
                load={turn.state === 'streaming' ? loads.get(thread.model) : undefined}
              />
            ))}
          </ol>
        </div>
      </div>
      {!isAtBottom && (
        <IconButton
          label={t.chat.toEnd}
          onClick={() => neverRejects(Promise.resolve(scrollToBottom()))}
          className="-translate-x-1/2 absolute bottom-3 left-1/2 rounded-full! border border-line-strong bg-raised shadow-raised"
        >
          <ArrowDown />
        </IconButton>
      )}
    </section>
  );
}
