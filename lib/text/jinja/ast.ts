// ast.ts: the syntax tree of @huggingface/jinja's parser, whose declarations the package does not export.

/** A statement or an expression; `Text` of a template is a StringLiteral. */
export type Node =
  | { readonly type: 'Program'; readonly body: readonly Node[] }
  | { readonly type: 'Comment' | 'Break' | 'Continue' }
  | {
      readonly type: 'If'
      readonly test: Node
      readonly body: readonly Node[]
      readonly alternate: readonly Node[]
    }
  | ForNode
  | {
      readonly type: 'Set'
      readonly assignee: Node
      readonly value: Node | null
      readonly body: readonly Node[]
    }
  | MacroNode
  | CallNode
  | { readonly type: 'FilterStatement'; readonly filter: Node; readonly body: readonly Node[] }
  | {
      readonly type: 'CallStatement'
      readonly call: CallNode
      readonly callerArgs: readonly Node[] | null
      readonly body: readonly Node[]
    }
  | { readonly type: 'Identifier'; readonly value: string }
  | { readonly type: 'StringLiteral'; readonly value: string }
  | { readonly type: 'IntegerLiteral' | 'FloatLiteral'; readonly value: number }
  | { readonly type: 'ArrayLiteral' | 'TupleLiteral'; readonly value: readonly Node[] }
  | { readonly type: 'ObjectLiteral'; readonly value: ReadonlyMap<Node, Node> }
  | {
      readonly type: 'MemberExpression'
      readonly object: Node
      readonly property: Node
      readonly computed: boolean
    }
  | { readonly type: 'SliceExpression'; readonly start?: Node; readonly stop?: Node; readonly step?: Node }
  | {
      readonly type: 'BinaryExpression'
      readonly operator: { readonly value: string }
      readonly left: Node
      readonly right: Node
    }
  | {
      readonly type: 'UnaryExpression'
      readonly operator: { readonly value: string }
      readonly argument: Node
    }
  | { readonly type: 'FilterExpression'; readonly operand: Node; readonly filter: Node }
  | {
      readonly type: 'TestExpression'
      readonly operand: Node
      readonly negate: boolean
      readonly test: { readonly value: string }
    }
  | { readonly type: 'SelectExpression'; readonly lhs: Node; readonly test: Node }
  | { readonly type: 'Ternary'; readonly condition: Node; readonly trueExpr: Node; readonly falseExpr: Node }
  | {
      readonly type: 'KeywordArgumentExpression'
      readonly key: { readonly value: string }
      readonly value: Node
    }
  | { readonly type: 'SpreadExpression' | 'KeywordSpreadExpression'; readonly argument: Node }

export interface ForNode {
  readonly type: 'For'
  readonly loopvar: Node
  readonly iterable: Node
  readonly body: readonly Node[]
  readonly defaultBlock: readonly Node[]
}

export interface MacroNode {
  readonly type: 'Macro'
  readonly name: { readonly value: string }
  readonly args: readonly Node[]
  readonly body: readonly Node[]
}

export interface CallNode {
  readonly type: 'CallExpression'
  readonly callee: Node
  readonly args: readonly Node[]
}

/** An expression as a template writes it, for error messages; statements as their first line. */
export function describe(node: Node): string {
  switch (node.type) {
    case 'Identifier':
      return node.value
    case 'StringLiteral':
      return `'${node.value.slice(0, 30)}'`
    case 'IntegerLiteral':
    case 'FloatLiteral':
      return String(node.value)
    case 'MemberExpression':
      return node.computed
        ? `${describe(node.object)}[${describe(node.property)}]`
        : `${describe(node.object)}.${describe(node.property)}`
    case 'SliceExpression':
      return [node.start, node.stop, node.step].map(part => (part ? describe(part) : '')).join(':')
    case 'CallExpression':
      return `${describe(node.callee)}(${node.args.map(describe).join(', ')})`
    case 'BinaryExpression':
      return `${describe(node.left)} ${node.operator.value} ${describe(node.right)}`
    case 'UnaryExpression':
      return `${node.operator.value} ${describe(node.argument)}`
    case 'FilterExpression':
      return `${describe(node.operand)} | ${describe(node.filter)}`
    case 'TestExpression':
      return `${describe(node.operand)} is ${node.negate ? 'not ' : ''}${node.test.value}`
    case 'KeywordArgumentExpression':
      return `${node.key.value}=${describe(node.value)}`
    case 'For':
      return `for ${describe(node.loopvar)} in ${describe(node.iterable)}`
    case 'Set':
      return `set ${describe(node.assignee)}${node.value ? ` = ${describe(node.value)}` : ''}`
    default:
      return node.type
  }
}
