import { gateway } from '../../api/client.ts';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Failure } from '../../ui/feedback.tsx';
import { Field, Input, Select, Textarea } from '../../ui/field.tsx';
import { WIDE } from '../../ui/form.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import { type FilledFields, hasMembers } from '../../ui/form-values.ts';
import { useAction } from '../../ui/use-action.ts';
import type { ModelCard } from './use-model-cards.ts';

const texts = t.models;

interface CardFormProps {
  model: string;
  card: ModelCard | undefined;
  saved: () => void;
  close: () => void;
}

const MODALITIES = ['text', 'image', 'audio', 'video', 'embedding'] as const;

/** An operator's description of a model. */
export default function CardForm({ model, card, saved, close }: CardFormProps) {
  const { form: words } = texts;
  const at = { params: { path: { id: model } } };
  const submit = async (filled: FilledFields) => {
    let stored: ModelCard | undefined;
    const changes = await filled.changesOver(bodyOf, async () => {
      stored = (await gateway.GET('/admin/model-cards')).data?.data.find(({ id }) => id === model);
      return stored;
    });
    if (!hasMembers(changes)) return;
    // A PUT replaces everything, so it contains the stored card and the changes.
    await gateway.PUT('/admin/model-cards/{id}', { ...at, body: { ...settable(stored), ...changes } });
  };
  const removal = useAction<unknown>(() => {
    saved();
    close();
  });
  return (
    <FormDialog title={words.title(model)} submit={submit} saved={saved} close={close}>
      <p className={`text-muted text-sm ${WIDE}`}>{words.about}</p>
      <Field label={words.description} hint={words.descriptionHint} className={WIDE}>
        {(id) => (
          <Textarea id={id} name="description" rows={4} maxLength={4000} defaultValue={card?.description ?? ''} />
        )}
      </Field>
      <Field label={texts.size} hint={words.sizeHint}>
        {(id) => <Input id={id} name="size" maxLength={120} defaultValue={card?.size ?? ''} />}
      </Field>
      <Field label={texts.license}>
        {(id) => <Input id={id} name="license" maxLength={120} defaultValue={card?.license ?? ''} />}
      </Field>
      <Field label={texts.context} hint={words.contextHint}>
        {(id) => <Input id={id} name="context" type="number" min="1" defaultValue={card?.context_length ?? ''} />}
      </Field>
      <Field label={words.url} hint={words.urlHint}>
        {(id) => <Input id={id} name="url" type="url" pattern="https://.*" defaultValue={card?.url ?? ''} />}
      </Field>
      <Choices name="input" label={texts.reads} chosen={card?.input ?? []} />
      <Choices name="output" label={texts.writes} chosen={card?.output ?? []} />
      <Answer name="tools" label={words.tools} value={card?.tools ?? null} />
      <Answer name="reasoning" label={words.reasoning} value={card?.reasoning ?? null} />
      {card !== undefined && (
        <div className={WIDE}>
          {removal.error !== undefined && <Failure error={removal.error} />}
          <Button
            size="small"
            disabled={removal.busy}
            onClick={() => removal.act(gateway.DELETE('/admin/model-cards/{id}', at))}
          >
            {words.remove}
          </Button>
        </div>
      )}
    </FormDialog>
  );
}

function Choices({ name, label, chosen }: { name: string; label: string; chosen: readonly string[] }) {
  return (
    <fieldset className="flex flex-col gap-1">
      <legend className="mb-1 font-medium text-sm">{label}</legend>
      {MODALITIES.map((one) => (
        <label key={one} className="flex items-center gap-2 text-sm">
          <input type="checkbox" name={name} value={one} defaultChecked={chosen.includes(one)} />
          {texts.modalities[one]}
        </label>
      ))}
    </fieldset>
  );
}

function Answer({ name, label, value }: { name: string; label: string; value: boolean | null }) {
  const { form: words } = texts;
  return (
    <Field label={label}>
      {(id) => (
        <Select id={id} name={name} defaultValue={value === null ? '' : String(value)}>
          <option value="">{words.notTold}</option>
          <option value="true">{words.yes}</option>
          <option value="false">{words.no}</option>
        </Select>
      )}
    </Field>
  );
}

function settable(stored: ModelCard | undefined): Omit<ModelCard, 'object' | 'id' | 'updated_at'> | undefined {
  if (stored === undefined) return undefined;
  const { object: _, id: __, updated_at: ___, ...rest } = stored;
  return rest;
}

function bodyOf(filled: FilledFields) {
  const answer = (name: string) => (filled.text(name) === '' ? null : filled.text(name) === 'true');
  return {
    description: filled.text('description'),
    size: filled.text('size'),
    license: filled.text('license'),
    context_length: filled.number('context'),
    url: filled.optional('url'),
    input: filled.choices('input', MODALITIES),
    output: filled.choices('output', MODALITIES),
    tools: answer('tools'),
    reasoning: answer('reasoning'),
  };
}
