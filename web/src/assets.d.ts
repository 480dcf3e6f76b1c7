declare module "*.css";
declare module "*.entries" {
  const address: string;
  export default address;
}
