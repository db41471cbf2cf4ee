import { useRef, useState } from 'react';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { DropZone } from '../../ui/drop-zone.tsx';
import { Failure } from '../../ui/feedback.tsx';
import { FileUp } from '../../ui/icons.ts';
import { Code } from '../../ui/page.tsx';

const texts = t.batches.drop;

const EXAMPLE = JSON.stringify({
  custom_id: 'claim-1',
  method: 'POST',
  url: '/v1/chat/completions',
  body: { model: 'MODEL', messages: [{ role: 'user', content: 'Is this true? …' }] },
});

/** Begins a batch from a dropped or chosen file. */
export function DropFile({ choose }: { choose: (file: File) => void }) {
  const chooser = useRef<HTMLInputElement>(null);
  const [error, setError] = useState<Error>();
  const add = ([file, second]: readonly File[]) => {
    setError(second === undefined ? undefined : new Error(texts.notOne));
    if (file !== undefined && second === undefined) choose(file);
  };
  return (
    <div className="flex flex-col gap-3">
      <DropZone
        label={texts.title}
        add={add}
        className="flex flex-col items-center gap-3 rounded-lg border border-line-strong border-dashed bg-surface px-6 py-8 text-center"
      >
        <FileUp className="size-7 text-muted" aria-hidden />
        <p className="max-w-xl text-pretty">{texts.about}</p>
        <Button kind="primary" onClick={() => chooser.current?.click()}>
          {texts.choose}
        </Button>
        <input
          ref={chooser}
          type="file"
          accept=".jsonl,.ndjson,.json,application/jsonl"
          aria-label={texts.choose}
          className="hidden"
          onChange={({ currentTarget }) => {
            add([...(currentTarget.files ?? [])]);
            // Choosing the same file again must also fire a change event.
            currentTarget.value = '';
          }}
        />
      </DropZone>
      {error !== undefined && <Failure error={error} />}
      <details className="text-sm">
        <summary className="cursor-pointer text-muted hover:text-ink">{texts.format}</summary>
        <div className="flex flex-col gap-2 pt-2">
          <p className="text-muted">{texts.formatAbout}</p>
          <Code label={texts.formatCode}>{EXAMPLE}</Code>
        </div>
      </details>
    </div>
  );
}
