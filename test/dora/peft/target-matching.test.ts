// Which modules an adapter goes to, by the tables of PEFT.
import t from 'tap'
import {
  firstPattern,
  layerNumber,
  type NamedModule,
  nearNames,
  type TargetRules,
  targetMatcher,
} from '#lib/dora/peft/target-matching.js'
import { goldenJson, noGolden } from '../../fixtures/values/golden-bytes.js'

interface Row {
  id: number
  key: string
  target_modules: string | string[]
  exclude_modules: string | string[] | null
  layers_to_transform: number | number[] | null
  layers_pattern: string | string[] | null
  modules_to_save: string[] | null
  match: boolean | null
  error?: string
}
interface Matching {
  rows: Row[]
  patterns: {
    module: string
    rank_pattern: Record<string, number>
    alpha_pattern: Record<string, number>
    default_r: number
    default_lora_alpha: number
    r: number
    lora_alpha: number
  }[]
  all_linear: {
    model: string
    output_embedding: string[] | null
    task_type: string | null
    leaf_modules: { name: string; type: string }[]
    matched: string[]
  }[]
}

const rulesOf = (row: Row): TargetRules => ({
  targetModules: row.target_modules,
  ...(row.exclude_modules !== null && { excludeModules: row.exclude_modules }),
  ...(row.layers_to_transform !== null && { layersToTransform: row.layers_to_transform }),
  ...(row.layers_pattern !== null && { layersPattern: row.layers_pattern }),
  ...(row.modules_to_save !== null && { modulesToSave: row.modules_to_save }),
})
const linear = (name: string): NamedModule => ({ name, kind: 'linear' })

t.test('the table of PEFT', { skip: noGolden }, async t => {
  const { rows, patterns, all_linear } = goldenJson<Matching>('peft/matching.json')
  t.ok(rows.length > 100)
  for (const row of rows) {
    const matches = (): boolean => targetMatcher(rulesOf(row))(linear(row.key)) !== undefined
    if (row.error) t.throws(matches, { code: 'ERR_ARGUMENT' }, `row ${row.id}`)
    else t.equal(matches(), row.match, `row ${row.id}: ${JSON.stringify(row)}`)
  }
  for (const { module, rank_pattern, alpha_pattern, ...row } of patterns) {
    t.equal(firstPattern('rankPattern', rank_pattern)(module)?.value ?? row.default_r, row.r, module)
    const alpha = firstPattern('alphaPattern', alpha_pattern)(module)?.value ?? row.default_lora_alpha
    t.equal(alpha, row.lora_alpha, module)
  }
  for (const { model, leaf_modules, output_embedding, task_type, matched } of all_linear) {
    const match = targetMatcher({ targetModules: 'All-Linear' })
    const head = task_type === 'SEQ_CLS' ? ['score', 'classifier'] : []
    const found = leaf_modules.filter(({ name, type }) => {
      const kind = type === 'Linear' || type === 'Conv1D' ? 'linear' : 'embedding'
      const isOutputEmbedding = output_embedding?.includes(name) === true || head.includes(name)
      return match({ name, kind, isOutputEmbedding }) !== undefined
    })
    t.strictSame(found.map(({ name }) => name).sort(), [...matched].sort(), model)
  }
})

t.test('parts of names', async t => {
  const match = targetMatcher({
    targetModules: ['proj', 'fc'],
    match: 'substring',
    excludeModules: ['1.fc2'],
  })
  t.equal(match(linear('h.0.q_proj')), 'proj')
  t.equal(match(linear('h.0.fc2')), 'fc')
  t.equal(match(linear('h.1.fc2')), undefined)
  t.equal(match(linear('h.0.norm')), undefined)
  t.throws(() => targetMatcher({ targetModules: ['a'], match: 'substring', layersToTransform: 0 }), {
    code: 'ERR_ARGUMENT',
    message: /layersToTransform needs targetModules to be a list/,
  })
})

t.test('expressions of Python', async t => {
  t.ok(targetMatcher({ targetModules: '(?i)H\\.(?P<layer>\\d+)\\.FC\\Z' })(linear('h.12.fc')))
  t.notOk(targetMatcher({ targetModules: 'h\\.1' })(linear('h.12')))
})

t.test('the number of a layer is what its pattern comes before', async t => {
  const number = layerNumber({ layersPattern: ['h', '(?:enc|dec)\\w*'] })
  t.equal(number('model.h.12.fc'), 12)
  t.equal(number('decoder.3.h.fc'), 3)
  t.equal(number('model.h.fc'), undefined)
  t.equal(layerNumber({ layersPattern: 'h.*' })('h.0.x.1.y'), 1, 'a greedy pattern takes what it can')
  t.equal(layerNumber({ layersPattern: 'h.*?' })('h.0.x.1.y'), 0)
  t.equal(layerNumber({})('model.layers.7.attn.2.fc'), 7)
})

t.test('patterns that take RegExp years', async t => {
  const name = 'a'.repeat(5000)
  for (const pattern of ['(a+)+b', '(a*)*(a*)*b', '(a|a)*b', '(?=(a+)+b)a*', '(.*.*.*)*b']) {
    const match = targetMatcher({ targetModules: pattern, excludeModules: pattern, modulesToSave: [pattern] })
    t.equal(match(linear(name)), undefined, pattern)
    t.equal(firstPattern('rankPattern', { [pattern]: 4 })(name), undefined, pattern)
    t.equal(layerNumber({ layersPattern: pattern })(name), undefined, pattern)
  }
})

t.test('names that are near', async t => {
  const names = ['h.0.attn.c_attn', 'h.0.mlp.c_fc', 'lm_head']
  t.strictSame(nearNames(names, ['c_atn'], 1), ['h.0.attn.c_attn'])
  t.strictSame(nearNames(names, ['lm_haed'], 2)[0], 'lm_head')
})
