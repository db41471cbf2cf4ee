import { lazy, memo, type ReactNode, Suspense } from 'react';
import type { ModelLoad } from '../api/schemas.ts';
import { count, milliseconds } from '../parts/format.ts';
import type { CatalogueModel } from '../parts/model-catalog.ts';
import { t } from '../texts/index.ts';
import { IconButton } from '../ui/button.tsx';
import { Copy } from '../ui/copy.tsx';
import { Failure } from '../ui/feedback.tsx';
import { ChevronLeft, ChevronRight, Pencil, RefreshCw } from '../ui/icons.ts';
import { AttachmentList } from './attachment-list.tsx';
import type { Turn } from './conversation.ts';
import { Reasoning, ToolCalls } from './reasoning.tsx';
import { SpeakButton } from './voice/speak-button.tsx';
import { WaitingLine } from './waiting-line.tsx';

/** The code for Markdown is as large as the rest of the page, so it is loaded with the first answer. */
const Markdown = lazy(() => import('./markdown/markdown.tsx'));

const texts = t.chat;

/** Pass the same object at each render, so that an unchanged turn is not rendered again. */
export interface TurnActions {
  /** Shows another branch in place of this turn. */
  show: (turn: Turn, at: number) => void;
  edit: (id: string) => void;
  again: (id: string) => void;
}

interface TurnViewProps {
  turn: Turn;
  /** Index of the turn among its `all` branches, from 0. */
  at: number;
  all: number;
  /** True while an answer streams. Then nothing may be changed. */
  busy: boolean;
  actions: TurnActions;
  model: CatalogueModel | undefined;
  load: ModelLoad | undefined;
}

export const TurnView = memo((props: TurnViewProps) =>
  props.turn.role === 'user' ? <Question {...props} /> : <Answer {...props} />,
);

function Question(props: TurnViewProps) {
  const { turn, busy, actions } = props;
  const { id, text, attachments = [] } = turn;
  return (
    <li className="turn user group flex flex-col items-end gap-1.5">
      <span className="sr-only">{texts.you}</span>
      <AttachmentList attachments={attachments} />
      {text !== '' && (
        <p className="said max-w-[85%] whitespace-pre-wrap rounded-xl rounded-br-sm bg-accent-soft px-4 py-2.5 [overflow-wrap:anywhere]">
          {text}
        </p>
      )}
      <Actions>
        {!busy && (
          <IconButton label={texts.edit} onClick={() => actions.edit(id)}>
            <Pencil />
          </IconButton>
        )}
        {text !== '' && <Copy icon label={texts.copy} text={text} />}
        <Branches {...props} />
      </Actions>
    </li>
  );
}

function Answer(props: TurnViewProps) {
  const { turn, busy, actions, model, load } = props;
  const { id, text, reasoning, reasoningMs, toolCalls = [], error, state, waiting, at, facts } = turn;
  const streaming = state === 'streaming';
  return (
    <li className="turn assistant group flex min-w-0 flex-col gap-2" aria-busy={streaming}>
      <span className="sr-only">{turn.model}</span>
      {reasoning !== undefined && <Reasoning text={reasoning} ms={reasoningMs} live={streaming && text === ''} />}
      {text !== '' && (
        <Suspense fallback={<p className="whitespace-pre-wrap">{text}</p>}>
          <Markdown text={text} streaming={streaming} />
        </Suspense>
      )}
      {toolCalls.length > 0 && <ToolCalls calls={toolCalls} />}
      {waiting !== undefined && <WaitingLine waiting={waiting} since={at} model={model} load={load} />}
      {state === 'stopped' && <p className="text-muted text-sm">{texts.stopped}</p>}
      {facts?.continued && <p className="text-muted text-sm">{texts.continued}</p>}
      {facts?.finish === 'length' && <p className="text-muted text-sm">{texts.cutOff}</p>}
      {error !== undefined && <Failure error={new Error(error)} retry={busy ? undefined : () => actions.again(id)} />}
      {!streaming && (
        <Actions>
          {text !== '' && <Copy icon label={texts.copy} text={text} />}
          {text !== '' && facts?.sealed !== true && <SpeakButton text={text} />}
          {!busy && (
            <IconButton label={texts.regenerate} onClick={() => actions.again(id)}>
              <RefreshCw />
            </IconButton>
          )}
          <Branches {...props} />
          <FactsLine turn={turn} />
        </Actions>
      )}
    </li>
  );
}

function Actions({ children }: { children: ReactNode }) {
  return <div className="-mx-2 flex min-h-8 flex-wrap items-center gap-0.5">{children}</div>;
}

function Branches({ turn, at, all, actions }: TurnViewProps) {
  if (all < 2) return null;
  return (
    <span className="inline-flex items-center text-muted text-sm">
      <IconButton label={texts.earlier} disabled={at === 0} onClick={() => actions.show(turn, at - 1)}>
        <ChevronLeft />
      </IconButton>
      <span className="tabular-nums">{texts.branch(at + 1, all)}</span>
      <IconButton label={texts.later} disabled={at === all - 1} onClick={() => actions.show(turn, at + 1)}>
        <ChevronRight />
      </IconButton>
    </span>
  );
}

/** The node that answered, and its speed. */
function FactsLine({ turn: { facts } }: { turn: Turn }) {
  if (facts === undefined) return null;
  const { node, provider, sealed, firstTokenMs, promptTokens, completionTokens, tokensPerSecond } = facts;
  const words = texts.facts;
  const told = [
    provider,
    node && `${words.node} ${node.slice(0, 8)}`,
    sealed && words.sealed,
    firstTokenMs !== undefined && words.firstToken(milliseconds(firstTokenMs)),
    promptTokens !== undefined &&
      completionTokens !== undefined &&
      words.tokens(count(promptTokens), count(completionTokens)),
    tokensPerSecond !== undefined && words.rate(tokensPerSecond.toFixed(1)),
  ].filter(Boolean);
  return <span className="told ml-1.5 text-muted text-xs">{told.join(' · ')}</span>;
}
