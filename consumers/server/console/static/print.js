// The button that prints the page: browsers without scripts print from their menu.
const button = document.getElementById("print");
button.hidden = false;
button.addEventListener("click", () => print());
