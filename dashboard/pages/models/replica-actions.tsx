/** Loading, unloading and moving a model by hand, for operators and for providers on their own nodes. */
import { useState } from 'react';
import { gateway } from '../../api/client.ts';
import type { Me, Node } from '../../api/schemas.ts';
import { gpus } from '../../parts/format.ts';
import { RowMenu } from '../../parts/resource-list.tsx';
import { t } from '../../texts/index.ts';
import { Confirm } from '../../ui/dialog.tsx';
import { Field, Input, Select, Textarea } from '../../ui/field.tsx';
import { WIDE } from '../../ui/form.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import type { FilledFields } from '../../ui/form-values.ts';

const texts = t.models.replicas;

/** Labels that agents set; see shared/deployment/deployment-labels.ts. */
const ACCEPTS_LABEL = 'otela.accepts';
const DEPLOYMENT_LABEL = 'otela.deployment';

const isHere = ({ state, connected }: Node) => connected && (state === 'JOIN' || state === 'SERVING');

/** True if this user may send orders to the node. */
export function mayOrder(me: Me, { provider }: Node): boolean {
  return me.role === 'operator' || (me.role === 'provider' && me.provider === provider);
}

/** The nodes that can load a model now. */
export function idleNodes(me: Me, nodes: Iterable<Node>): Node[] {
  return [...nodes].filter((node) => isHere(node) && mayOrder(me, node) && node.labels?.[ACCEPTS_LABEL] !== undefined);
}

export type ReplicaAction =
  | { kind: 'load' }
  | { kind: 'move'; model: string; node: Node }
  | { kind: OrderKind; model: string; node: Node };

/** Orders that need no further input. */
type OrderKind = 'unload' | 'sleep' | 'wake' | 'loadAdapter' | 'unloadAdapter';

interface ReplicaMenuProps {
  me: Me;
  model: string;
  node: Node;
  ask: (action: ReplicaAction) => void;
}

/** Engines that can sleep. */
const SLEEPERS: readonly (string | undefined)[] = ['vllm', 'sglang'];

/** The actions on one node of a model. Empty for other providers' nodes, and if the node can do nothing by order. */
export function ReplicaMenu({ me, model, node, ask }: ReplicaMenuProps) {
  if (!isHere(node) || !mayOrder(me, node)) return null;
  const isDeployed = node.labels?.[DEPLOYMENT_LABEL] !== undefined;
  const served = node.models.find(({ id }) => id === model);
  const isAdapter = served?.parent !== undefined;
  const action = (kind: OrderKind | 'move') => ({
    label: texts[kind],
    act: () => ask({ kind, model, node }),
    danger: kind === 'unload',
  });
  return (
    <RowMenu
      name={texts.nodeOf(node.session.slice(0, 8), model)}
      actions={[
        isAdapter && served?.state === 'on-disk' && action('loadAdapter'),
        isAdapter && served?.state === 'ready' && action('unloadAdapter'),
        !isAdapter && served?.state === 'asleep' && action('wake'),
        !isAdapter && served?.state === 'ready' && SLEEPERS.includes(served.engine) && action('sleep'),
        !isAdapter && isDeployed && action('move'),
        !isAdapter && isDeployed && action('unload'),
      ]}
    />
  );
}

interface ReplicaDialogProps {
  action: ReplicaAction;
  idle: readonly Node[];
  close: () => void;
  /** Called with a sentence about the order that an agent accepted. */
  done: (sentence: string) => void;
}

export function ReplicaDialog({ action, idle, close, done }: ReplicaDialogProps) {
  if (action.kind === 'load' || action.kind === 'move')
    return <Start action={action} idle={idle} close={close} done={done} />;
  return <Ordered action={action} close={close} done={done} />;
}

interface OrderedProps extends Pick<ReplicaDialogProps, 'close' | 'done'> {
  action: Exclude<ReplicaAction, { kind: 'load' | 'move' }>;
}

/** Unloads a model, puts its engine to sleep or wakes it, loads or unloads an adapter. */
function Ordered({ action: { kind, model, node }, close, done }: OrderedProps) {
  const { session } = node;
  const body = { model, session };
  const act = async () => {
    if (kind === 'wake' || kind === 'loadAdapter') await gateway.POST('/admin/replicas/load', { body });
    else await gateway.POST('/admin/replicas/unload', { body: kind === 'sleep' ? { ...body, sleep: 1 } : body });
    done(texts[`${kind}s`](session.slice(0, 8), model));
  };
  return (
    <Confirm
      title={texts[`${kind}Title`](model)}
      action={texts[kind]}
      act={act}
      close={close}
      kind={kind === 'unload' ? 'danger' : 'primary'}
    >
      {texts[`${kind}Follows`]}
    </Confirm>
  );
}

interface StartProps extends Omit<ReplicaDialogProps, 'action'> {
  action: Extract<ReplicaAction, { kind: 'load' | 'move' }>;
}

/** Loads a model on an idle node: a new one, or one that is moved there. */
function Start({ action, idle, close, done }: StartProps) {
  const [chosen, setChosen] = useState('');
  const templates = idle.find(({ session }) => session === chosen)?.labels?.[ACCEPTS_LABEL]?.split(',') ?? [];
  const from = action.kind === 'move' ? action.node.session : undefined;
  const submit = async (filled: FilledFields) => {
    const model = filled.text('model');
    const template = filled.optional('template');
    const body = {
      model,
      ...(template === null ? {} : { template }),
      parameters: Object.fromEntries((filled.pairs('parameters') ?? []).map(([name, value]) => [name, typed(value)])),
    };
    const place = chosen === '' ? {} : from === undefined ? { session: chosen } : { to: chosen };
    const { data } =
      from === undefined
        ? await gateway.POST('/admin/replicas/load', { body: { ...body, ...place } })
        : await gateway.POST('/admin/replicas/move', { body: { ...body, ...place, from } });
    done(texts.loads(data?.session.slice(0, 8) ?? '', model));
  };
  const title = action.kind === 'move' ? texts.moveTitle(action.model) : texts.loadTitle;
  return (
    <FormDialog title={title} action={from === undefined ? texts.load : texts.move} submit={submit} close={close}>
      <Field label={texts.model} hint={texts.modelHint} className={WIDE}>
        {(id) => (
          <Input
            id={id}
            name="model"
            required
            maxLength={256}
            defaultValue={action.kind === 'move' ? action.model : ''}
            readOnly={action.kind === 'move'}
          />
        )}
      </Field>
      <Field label={texts.node} hint={idle.length === 0 ? texts.noIdle : texts.nodeHint}>
        {(id) => (
          <Select id={id} value={chosen} onChange={(event) => setChosen(event.currentTarget.value)}>
            <option value="">{texts.anyNode}</option>
            {idle.map(({ session, cluster, hardware }) => (
              <option key={session} value={session}>
                {`${session.slice(0, 8)}, ${cluster}, ${gpus(hardware.gpus)}`}
              </option>
            ))}
          </Select>
        )}
      </Field>
      <Field label={texts.template} hint={texts.templateHint}>
        {(id) => (
          <>
            <Input id={id} name="template" maxLength={63} list={`${id}-known`} />
            <datalist id={`${id}-known`}>
              {templates.map((name) => (
                <option key={name} value={name} />
              ))}
            </datalist>
          </>
        )}
      </Field>
      <Field label={texts.parameters} hint={texts.parametersHint} className={WIDE}>
        {(id) => <Textarea id={id} name="parameters" rows={2} />}
      </Field>
    </FormDialog>
  );
}

/** A template's number is sent as a number, and other values as text. */
function typed(value: string): string | number {
  return /^-?\d{1,15}$/.test(value) ? Number(value) : value;
}
