import { Link } from 'wouter';
import { isAtRest, type StartableView, startableWords } from '../../parts/startable-models.ts';
import { t } from '../../texts/index.ts';
import { buttonClass } from '../../ui/button.tsx';
import { Tag } from '../../ui/feedback.tsx';
import { MessageSquare } from '../../ui/icons.ts';
import { Section } from '../../ui/page.tsx';

const texts = t.startable;

/** Models that a request starts. */
export function StartableList({ models }: { models: readonly StartableView[] }) {
  if (models.length === 0) return null;
  return (
    <Section title={texts.title}>
      <p className="text-muted">{texts.about}</p>
      <ul className="divide-y divide-line rounded-lg border border-line bg-surface">
        {models.map((model) => (
          <li key={model.id} className="flex flex-wrap items-center gap-x-4 gap-y-2 px-4 py-2.5">
            <span className="min-w-0 flex-1 font-medium text-sm [overflow-wrap:anywhere]">{model.id}</span>
            <Tag kind={model.state === 'resting' ? 'bad' : isAtRest(model.state) ? 'plain' : 'wait'}>
              {startableWords(model)}
            </Tag>
            {model.mayStart && model.state !== 'resting' ? (
              <Link href={`/chat?model=${encodeURIComponent(model.id)}`} className={buttonClass({ size: 'small' })}>
                <MessageSquare className="size-3.5" aria-hidden />
                {t.models.chat}
              </Link>
            ) : (
              !model.mayStart && <span className="text-muted text-sm">{texts.notYours}</span>
            )}
          </li>
        ))}
      </ul>
    </Section>
  );
}
