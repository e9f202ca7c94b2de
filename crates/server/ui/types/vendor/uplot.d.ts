/** What the pages use of uPlot, for the type checker alone. */
export default class uPlot {
  static tzDate(date: Date, zone: string): Date;
  constructor(options: object, data: unknown[], target: Element);
  setData(data: unknown[]): void;
  setSize(size: { width: number; height: number }): void;
  destroy(): void;
}
