"""What people talk about: subjects of prompts that no text on a machine provides."""

TOPICS = """\
photosynthesis|the water cycle|black holes|volcanoes|earthquakes|the moon|comets|gravity|magnetism
electricity|sound waves|rainbows|clouds|thunderstorms|tides|coral reefs|rainforests|deserts|glaciers
the ozone layer|climate change|recycling|solar power|wind turbines|nuclear energy|batteries|bridges
tunnels|lighthouses|castles|pyramids|the Roman Empire|ancient Greece|the Vikings|the Silk Road
the Renaissance|the printing press|the steam engine|the French Revolution|the Industrial Revolution
the First World War|the moon landing|the Berlin Wall|democracy|constitutions|elections|taxes
inflation|interest rates|the stock market|supply and demand|budgeting|saving money|mortgages
insurance|starting a small business|marketing|customer service|negotiation|leadership|teamwork
time management|public speaking|job interviews|writing a resume|working from home|burnout|sleep
exercise|running|swimming|yoga|cycling|hiking|camping|healthy eating|vitamins|vaccines|antibiotics
the immune system|the heart|the human brain|memory|dreams|stress|meditation|friendship|loneliness
parenting|learning a language|reading habits|note taking|studying for exams|mathematics anxiety
prime numbers|probability|statistics|geometry|algebra|calculus|logic|cryptography|computers
the internet|search engines|email|passwords|phishing|cloud computing|databases|machine learning
neural networks|robots|drones|self-driving cars|3D printing|virtual reality|video games|chess
programming|version control|unit testing|recursion|sorting algorithms|binary search|hash tables
linked lists|graphs in computer science|operating systems|compilers|open source software|web design
accessibility|typography|color theory|painting|sculpture|photography|film making|theatre|ballet
opera|jazz|classical music|guitar|piano|singing|poetry|novels|short stories|mystery fiction
science fiction|fairy tales|mythology|philosophy|ethics|stoicism|happiness|curiosity|creativity
critical thinking|honesty|courage|patience|kindness|gratitude|bees|ants|spiders|butterflies|owls
eagles|penguins|dolphins|whales|sharks|octopuses|elephants|lions|wolves|bears|horses|dogs|cats
dinosaurs|evolution|genetics|DNA|cells|bacteria|viruses|fungi|trees|flowers|gardening|composting
tomatoes|potatoes|bread|cheese|chocolate|coffee|tea|wine|pasta|soup|salads|breakfast
vegetarian cooking|baking|street food|spices|Italy|Japan|Brazil|Kenya|India|Mexico
Norway|Egypt|Australia|Canada|islands|mountains|rivers|lakes|oceans|trains|airplanes|ships|bicycles|maps|clocks|calendars
paper|glass|steel|concrete|plastic|gold|salt|soap|shoes|umbrellas|mirrors|telescopes|microscopes
thermometers|compasses|windmills|museums|libraries|schools|universities|hospitals|firefighters
police|judges|farmers|fishermen|carpenters|astronauts|pilots|nurses|teachers|engineers|journalism
advertising|social media|privacy|copyright|football|basketball|tennis|the Olympic Games|marathons
sailing|skiing|rock climbing|birthdays|weddings|festivals|holidays|moving house|renting an apartment
houseplants|cleaning|laundry|minimalism|road trips|travel on a budget|packing a suitcase"""

THINGS = """\
capital cities|countries in Africa|countries in Asia|countries in Europe|rivers|mountains|oceans
planets|chemical elements|metals|gases|trees|flowers|fruits|vegetables|herbs|spices|birds|fish
insects|mammals|reptiles|dog breeds|musical instruments|musical genres|composers|painters|novels
films|board games|card games|sports|Olympic sports|programming languages|data structures|algorithms
file formats|keyboard shortcuts|Linux commands|Python built-in functions
modules of the Python standard library|HTML tags|SQL keywords|HTTP status codes|kitchen tools
garden tools|pieces of furniture|items of clothing|colors|shapes|units of measurement|currencies
languages|professions|hobbies
holidays|inventions|inventors|scientists|philosophers|explorers|kings and queens|famous speeches
famous buildings|museums|bridges|airports|car brands|types of bread|types of cheese|pasta shapes
soups|desserts|drinks|breakfast dishes|vegetarian dishes|snacks for children|healthy habits
study tips|tips for better sleep|ways to save money|ways to save energy|ways to reduce waste
gift ideas|party games|icebreaker questions|interview questions|questions to ask a mentor
books for teenagers|names for a cat|names for a bakery|slogans for a coffee shop|topics for an essay
science experiments for a classroom|exercises without equipment|stretches|months of the year
days of the week|bones of the body|organs of the body|senses|emotions|virtues|proverbs|idioms
adjectives that describe the sea|verbs of motion|words that rhyme with light|countries with a coast
American states|Canadian provinces|Shakespeare's plays|Greek gods|constellations|types of clouds
types of rock|layers of the atmosphere|renewable sources of energy|safety rules for a laboratory
things to take on a hike|things to do on a rainy day|things to check before a flight"""

TASKS = """\
bake a loaf of bread|plant a tree|change a bicycle tire|write a cover letter|clean a kitchen
set up a home office|train for a 10 km run|learn to play the guitar|start a vegetable garden
organise a birthday party|plan a week of meals|paint a room|take a good photograph|tie a tie
brew coffee|make pancakes|write a short story|prepare for an exam|give a presentation|learn to swim
fix a leaking tap|iron a shirt|wrap a present|build a bookshelf|sharpen a knife|cook rice
back up a computer|install Python|debug a program|write a unit test|review a pull request
choose a password|set up a wireless router|start a blog|record a podcast|save for a holiday
apply for a job|ask for a raise|end a meeting on time|take notes in a lecture|make a budget
adopt a dog|teach a child to read|pack for a hike|put up a tent|read a map|light a campfire"""

SETTINGS = """\
a lighthouse keeper|a lost robot|a girl who finds a map|two brothers on a boat|an old clockmaker
a dragon who is afraid of fire|a detective in a small town|a baker who cannot taste|the last library
a train that never stops|a letter that arrives late|a village below a dam|a dog who waits
a garden on the moon|a musician without a piano|a bridge between two cities|a storm at sea
an empty school|a painter who paints only doors|a market at midnight|a fox and a crow
a machine that remembers|a secret staircase|a winter without snow|a king who wants to be a gardener
a teacher on her first day|an astronaut far from home|a forgotten recipe|a boy who counts stars
a silent radio"""


def split(text: str) -> tuple[str, ...]:
    """The subjects, each ended by a bar or by its line's end."""
    return tuple(text.replace("\n", "|").split("|"))
