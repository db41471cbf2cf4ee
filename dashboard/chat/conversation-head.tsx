import { memo } from 'react';
import type { ModelLoad } from '../api/schemas.ts';
import type { CatalogueModel } from '../parts/model-catalog.ts';
import { t } from '../texts/index.ts';
import { IconButton } from '../ui/button.tsx';
import { Columns2, SlidersHorizontal, SquarePen } from '../ui/icons.ts';
import { ModelPicker } from './model-picker.tsx';
import type { OpenConversation } from './open-conversation.ts';

const texts = t.chat;

interface ConversationHeadProps {
  model: OpenConversation;
  title: string;
  /** The requested model; if two models are compared, the first one. */
  asked: string;
  /** True if two models are compared; each has a picker above its own answers. */
  two: boolean;
  busy: boolean;
  /** True if a setting differs from its default. */
  isSet: boolean;
  models: readonly CatalogueModel[];
  loads: ReadonlyMap<string, ModelLoad>;
  openSettings: () => void;
  begin: () => void;
}

/** The bar above a conversation. It is not rendered again while an answer streams. */
export const ConversationHead = memo((props: ConversationHeadProps) => {
  const { model, title, asked, two, busy, isSet, models, loads, openSettings, begin } = props;
  const compare = () => {
    const other = models.find(({ id, serving }) => serving > 0 && id !== asked) ?? models[0];
    if (other !== undefined) model.compareWith(other.id);
  };
  return (
    <div className="flex h-14 shrink-0 items-center gap-1 border-line border-b px-3">
      <div className="min-w-0 flex-1 truncate px-2.5 font-semibold">
        {two ? (
          title || texts.compare
        ) : (
          <span className="-ml-2.5 flex">
            <ModelPicker
              label={texts.model}
              value={asked}
              models={models}
              loads={loads}
              choose={(next) => model.setModel(0, next)}
            />
          </span>
        )}
      </div>
      {!two && (
        <IconButton label={texts.compare} onClick={compare} disabled={busy || models.length === 0}>
          <Columns2 />
        </IconButton>
      )}
      <IconButton label={texts.settings.open} pressed={isSet} onClick={openSettings}>
        <SlidersHorizontal />
      </IconButton>
      <IconButton label={texts.newChat} onClick={begin} className="md:hidden">
        <SquarePen />
      </IconButton>
    </div>
  );
});
